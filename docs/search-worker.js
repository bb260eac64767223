// Browsers start no worker from a file.  Opened from the disk, the search runs in a hidden frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inner = frame.contentWindow;
      inner.postMessage = (data) => this.#send(this, data);
      const script = frame.contentDocument.createElement("script");
      script.src = url;
      this.ready = new Promise((resolve) => script.addEventListener("load", resolve));
      this.inner = inner;
      frame.contentDocument.head.append(script);
    }

    async postMessage(data) {
      await this.ready;
      this.#send(this.inner, data);
    }

    #send(target, data) {
      const event = new MessageEvent("message", { data });
      target.onmessage?.(event);
      target.dispatchEvent(event);
    }
  };
}
