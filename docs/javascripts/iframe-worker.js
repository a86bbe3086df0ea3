// The site's search runs in a Worker. Browsers refuse to start one for a page that is opened from the disk
// (file:), so a hidden frame loads the worker's script and exchanges the same messages.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.append(frame)
      this.ready = new Promise((resolve) => {
        const inside = frame.contentWindow
        inside.document.open()
        inside.document.write("<!doctype html><title>search</title>")
        inside.document.close()
        const load = (source) => new Promise((loaded) => {
          const script = inside.document.createElement("script")
          script.src = source
          script.onload = script.onerror = loaded
          inside.document.head.append(script)
        })
        inside.importScripts = (...sources) => sources.reduce((before, s) => before.then(() => load(s)), Promise.resolve())
        inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }))
        load(url).then(() => resolve(inside))
      })
    }
    postMessage(data) {
      this.ready.then((inside) => inside.dispatchEvent(new inside.MessageEvent("message", { data })))
    }
  }
}
