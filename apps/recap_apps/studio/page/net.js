// How the page speaks to its server: short questions, and lines that stay open and mend themselves.

export async function ask(path, { method = "GET", body } = {}) {
  const given = { method, headers: { Accept: "application/json" } };
  if (body !== undefined) {
    given.body = JSON.stringify(body);
    given.headers["Content-Type"] = "application/json";
  }
  let answer;
  try {
    answer = await fetch(path, given);
  } catch {
    throw new Error("The server does not answer.");
  }
  const told = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(told.error || `The server says ${answer.status}.`);
  return told;
}

export const demoPath = (id) => `/api/pool/${encodeURIComponent(id)}`;

const FIRST_WAIT_MS = 400;
const LONGEST_WAIT_MS = 4000;

export class Line {
  // A websocket that comes back by itself.
  constructor(path, { heard, opened = () => {}, lost = () => {} }) {
    this.path = path;
    this.heard = heard;
    this.opened = opened;
    this.lost = lost;
    this.wait = FIRST_WAIT_MS;
    this.connect();
  }

  connect() {
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    const socket = new WebSocket(`${scheme}://${location.host}${this.path}`);
    this.socket = socket;
    socket.onopen = () => {
      this.wait = FIRST_WAIT_MS;
      this.opened();
    };
    socket.onmessage = (event) => this.heard(JSON.parse(event.data));
    socket.onclose = () => {
      this.lost();
      setTimeout(() => this.connect(), this.wait);
      this.wait = Math.min(LONGEST_WAIT_MS, this.wait * 1.6);
    };
  }

  say(type, values = {}) {
    if (this.socket.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify({ type, ...values }));
  }
}
