// Browsers start no worker for a page that is read from a disk. There a hidden frame runs the search: Material looks for a
// class of this name, and awaits `importScripts`.
class IFrameWorker extends EventTarget {
  constructor(url) {
    super();
    const frame = document.createElement("iframe");
    frame.hidden = true;
    document.body.append(frame);
    this.inside = frame.contentWindow;
    const load = src => new Promise((onload, onerror) =>
      this.inside.document.body.append(Object.assign(this.inside.document.createElement("script"), { src, onload, onerror })));
    this.inside.importScripts = (...all) => all.reduce((before, src) => before.then(() => load(src)), Promise.resolve());
    this.inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }));
    this.ready = load(new URL(url, location.href).href);
  }
  postMessage(data) {
    this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
  }
  terminate() {}
}
if (location.protocol === "file:") window.Worker = window.IFrameWorker = IFrameWorker;
