// Search from the file system: a page opened as file:// may not start a Worker, so a hidden frame
// runs the same script instead. Served over HTTP, the browser's own Worker is left as it is.
if (location.protocol === "file:") {
  window.Worker = class {
    constructor(source) {
      this.onmessage = this.onmessageerror = this.onerror = null;
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inner = this.frame.contentWindow;
      inner.postMessage = (data) => this.send((event) => this.onmessage?.(event), data);
      const script = inner.document.createElement("script");
      script.src = new URL(source, location);
      script.onerror = (error) => this.onerror?.(error);
      this.ready = new Promise((done) => (script.onload = done));
      inner.document.documentElement.append(script);
    }

    postMessage(data) {
      this.ready.then(() => this.send((event) => this.frame.contentWindow?.onmessage?.(event), data));
    }

    send(receive, data) {
      const copy = structuredClone(data); // as between threads: neither side sees later changes
      setTimeout(() => receive({ data: copy }));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
