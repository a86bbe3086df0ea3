// A hand on a board: the pointer, a finger or the arrow keys say where the pusher should go.

const KEY_STEP_PX = 9;
const FINE_STEP_PX = 3;
const PERIOD_MS = 100;
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

export class Lead {
  // `isLive` says whether the board can be led now, `moment` where the pusher is; a `reach` in px leaves
  // alone what is pressed farther from it.
  constructor(board, { size, isLive, moment, point, release, reach = Infinity }) {
    Object.assign(this, { board, size, isLive, moment, point, release, reach });
    this.keys = new Map();
    const svg = board.element;
    svg.setAttribute("role", "application");
    svg.setAttribute("tabindex", "0");
    svg.addEventListener("pointerdown", (event) => this.press(event));
    svg.addEventListener("pointermove", (event) => {
      if (svg.hasPointerCapture(event.pointerId)) this.lead(board.place(event));
    });
    for (const name of ["pointerup", "pointercancel"]) {
      svg.addEventListener(name, (event) => {
        if (svg.hasPointerCapture(event.pointerId)) svg.releasePointerCapture(event.pointerId);
        this.letGo();
      });
    }
    svg.addEventListener("keydown", (event) => this.key(event));
    svg.addEventListener("keyup", (event) => {
      if (this.keys.delete(event.key) && !this.keys.size) this.letGo();
    });
    svg.addEventListener("blur", () => this.letGo());
  }

  // A mouse leads the pusher to where it is; a finger, which would hide it, leads it from afar.
  press(event) {
    if (!this.isLive() || event.button !== 0) return;
    const svg = this.board.element;
    const at = this.board.place(event);
    const [x, y] = this.moment().pusher;
    if (Math.hypot(at[0] - x, at[1] - y) > this.reach) return;
    svg.setPointerCapture(event.pointerId);
    svg.focus({ preventScroll: true });
    this.offset = event.pointerType === "touch" ? [x - at[0], y - at[1]] : [0, 0];
    this.lead(at);
    event.preventDefault();
  }

  lead([x, y]) {
    this.held = [
      Math.min(this.size, Math.max(0, x + this.offset[0])),
      Math.min(this.size, Math.max(0, y + this.offset[1])),
    ];
    if (this.waiting || !this.isLive()) return;
    this.waiting = true; // one message a frame is enough
    requestAnimationFrame(() => {
      this.waiting = false;
      if (!this.held || !this.isLive()) return;
      this.board.target(this.held);
      this.point(this.held);
    });
  }

  key(event) {
    if (!ARROWS[event.key] || !this.isLive()) return;
    event.preventDefault();
    this.fine = event.shiftKey;
    this.keys.set(event.key, ARROWS[event.key]);
    if (this.keyTimer) return;
    const { target, pusher } = this.moment();
    this.held = [...(target || pusher)];
    this.offset = [0, 0];
    const step = () => {
      const length = this.fine ? FINE_STEP_PX : KEY_STEP_PX;
      let [x, y] = this.held;
      for (const [dx, dy] of this.keys.values()) [x, y] = [x + dx * length, y + dy * length];
      this.lead([x, y]);
    };
    step();
    this.keyTimer = setInterval(step, PERIOD_MS);
  }

  letGo() {
    clearInterval(this.keyTimer);
    this.keyTimer = null;
    this.keys.clear();
    if (!this.held) return;
    this.held = null;
    this.board.target(null);
    this.release();
  }
}
