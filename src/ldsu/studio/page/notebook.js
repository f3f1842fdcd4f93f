// The page in the cell of a notebook: messages of anywidget. `notebook.py` joins it with `map.js`
// and `studio.js`, and gives it MARKUP and STYLE.

import { mount } from "./studio.js";

const KEPT_IMAGES = 1000, SILENT_MS = 5000;
const SILENT = "The notebook has not answered for some seconds: it is busy, or its kernel has stopped.";

function transport(model, view) {
  const waiting = new Map(), images = new Map();
  let number = 0, silent = false, say = () => {}, heard = () => {};
  const receive = (content, buffers) => {
    if ("news" in content) return heard(content.news);
    const answer = waiting.get(content.id);
    if (!answer) return; // of another view of this cell
    waiting.delete(content.id);
    clearTimeout(answer.timer);
    if (silent) say("", true);
    silent = false;
    if ("error" in content) answer.reject(new Error(content.error));
    else if (buffers?.length) {
      const { buffer, byteOffset, byteLength } = buffers[0];
      answer.resolve(buffer.slice(byteOffset, byteOffset + byteLength));
    } else answer.resolve(content.answer);
  };
  const ask = (request) => new Promise((resolve, reject) => {
    const id = `${view}-${number++}`;
    const timer = setTimeout(() => { silent = true; say(SILENT, true); }, SILENT_MS);
    waiting.set(id, { resolve, reject, timer });
    model.send({ id, ...request });
  });
  const drop = (row) => {
    images.get(row).then((address) => URL.revokeObjectURL(address), () => {});
    images.delete(row);
  };
  model.on("msg:custom", receive);
  return {
    read: (what) => ask({ read: what }),
    act: (action, body) => ask({ act: action, body }),
    image(row) {
      if (!images.has(row)) {
        if (images.size === KEPT_IMAGES) drop(images.keys().next().value);
        images.set(row, ask({ read: `image/${row}` }).then((png) => URL.createObjectURL(new Blob([png], { type: "image/png" }))));
      }
      return images.get(row);
    },
    follow(changed, lost) {
      heard = (revision) => (revision === null ? lost("The session was closed. Run the cell again.") : changed(revision));
    },
    sayWith(show) { say = show; },
    close() {
      model.off("msg:custom", receive);
      for (const { timer } of waiting.values()) clearTimeout(timer);
      for (const row of [...images.keys()]) drop(row);
    },
  };
}

// Notebooks have themes of their own: text is light where the theme is dark.
function isDark(el) {
  const [red, green, blue] = getComputedStyle(el).color.match(/[\d.]+/g).map(Number);
  return red + green + blue > 384;
}

export default {
  render({ model, el }) {
    const host = document.createElement("div");
    host.dataset.lmSuppressShortcuts = "true"; // JupyterLab leaves the keys to the page
    const shadow = host.attachShadow({ mode: "open" });
    const page = document.createElement("div");
    page.className = "studio";
    page.tabIndex = -1;
    page.append(...new DOMParser().parseFromString(MARKUP, "text/html").body.childNodes);
    page.addEventListener("keydown", (event) => event.stopPropagation());
    const sheet = new CSSStyleSheet();
    sheet.replaceSync(STYLE);
    shadow.adoptedStyleSheets = [sheet];
    shadow.append(page);
    el.append(host);
    const session = transport(model, Math.random().toString(36).slice(2));
    // A cell is rendered before it is in the notebook, and has neither a theme nor a size until then.
    const shown = new ResizeObserver(() => {
      if (!host.isConnected) return;
      shown.disconnect();
      for (const rule of sheet.cssRules) {
        if (rule.conditionText?.includes("prefers-color-scheme")) rule.media.mediaText = isDark(el) ? "all" : "not all";
      }
      host.studio = mount(page, session);
      session.sayWith(host.studio.say);
    });
    shown.observe(host);
    return () => {
      shown.disconnect();
      session.close();
      host.studio?.close();
      host.remove();
    };
  },
};
