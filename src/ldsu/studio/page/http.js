// The page in a tab of its own: requests and server-sent events.

import { mount } from "./studio.js";

async function ask(path, options = {}) {
  const response = await fetch(path, { credentials: "same-origin", ...options });
  if (response.ok) return response;
  const { error } = await response.json().catch(() => ({ error: response.statusText }));
  throw new Error(error);
}

async function post(action, body) {
  const headers = { "Content-Type": "application/json", "X-LDSU-Studio": "1" };
  return (await ask(`/${action}`, { method: "POST", headers, body: JSON.stringify(body) })).json();
}

// Exchanges the token in the address, if there is one, for a cookie.
async function logIn() {
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  if (!token) return;
  history.replaceState(null, "", location.pathname); // before anything can fail
  await post("login", { token });
}

const ready = logIn();
const LOST = "The connection is lost. If it does not come back, start `ldsu label` again and open the address it prints.";
window.studio = mount(document.body, {
  async read(what) {
    await ready;
    const response = await ask(`/${what}`);
    if (!response.headers.get("Content-Type").includes("json")) return response.arrayBuffer();
    const found = await response.json();
    if (what === "state") document.title = `${found.source} – ldsu label`;
    return found;
  },
  async image(row) {
    return `/image/${row}`;
  },
  act: post,
  follow(changed, lost) {
    const stream = new EventSource("/news");
    let away = false;
    stream.onmessage = (event) => {
      if (away) lost("");
      away = false;
      changed(Number(event.data));
    };
    stream.onerror = () => { away = true; lost(LOST); };
    stream.addEventListener("end", () => { stream.close(); lost(LOST); });
  },
});
