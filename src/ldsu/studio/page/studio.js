// The page: what is shown comes from the session, what a person does goes there. Text is only ever set as text.
// `http.js` shows it in a tab of its own, `notebook.js` in the cell of a notebook.

import { DOUBTFUL, PointMap } from "./map.js";

const SHOWN = 12, LISTED = 30;
const percent = (value, digits = 0) => `${(100 * value).toFixed(digits)} %`;
const quoted = (name) => `“${name}”`;
const counted = (n, noun) => `${n.toLocaleString("en")} ${noun}${n === 1 ? "" : "s"}`;

function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

// Shows a session in an element, in which keys work while it has the focus. `session` has
// read(what): a promise of an object, or of an ArrayBuffer; image(row): a promise of the address of an image;
// act(action, body): a promise of { result, state }; follow(changed, lost): calls changed(revision).
export function mount(page, session) {
  const root = page.getRootNode(); // the document, or the shadow of a cell
  const $ = (selector) => page.querySelector(selector);
  let state = null; // of the session, with the revision that it belongs to
  let current = null; // the row to label
  let selection = []; // rows that the next answer is for, if any
  let pending = null; // a bulk answer that waits for consent
  let passed = new Set(); // suggestions that were passed with Space
  let kept = new Map(); // rows as they were shown in this revision
  let tool = "pan";
  const map = new PointMap($("#map"), () => drawOutline());

  // New content; a button that had the focus leaves it to the one in its place, or to the page, which reads the keys.
  function fill(selector, ...content) {
    const place = $(selector), buttons = () => [...place.querySelectorAll("button")];
    const focused = place.contains(root.activeElement) ? buttons().indexOf(root.activeElement) : null;
    place.replaceChildren(...content);
    if (focused !== null) (buttons()[focused] ?? page).focus({ preventScroll: true });
  }

  let hiding = 0;
  function say(text, lasting = false) {
    $("#message").textContent = text;
    $("#message").hidden = !text;
    clearTimeout(hiding);
    if (!lasting) hiding = setTimeout(() => say("", true), 6000);
  }

  // Do something that may fail, and say why it did.
  async function attempt(work) {
    try {
      return await work();
    } catch (error) {
      say(error.message);
    }
  }

  // --- From the session

  let refreshing = null, again = false, painted = 0;
  // Get what changed; several changes at once are got together.
  function refresh() {
    again = true;
    refreshing ??= attempt(async () => {
      while (again) {
        again = false;
        const found = await session.read("state");
        if (found.map !== state?.map) map.place(new Float32Array(await session.read("map")));
        map.paint(await session.read("points"));
        painted = found.revision;
        show(found);
      }
    }).finally(() => { refreshing = null; });
    return refreshing;
  }

  async function act(action, body = {}) {
    const { result, state: found } = await session.act(action, body);
    if (found.map !== state.map) found.map = state.map; // it is fetched by `refresh`
    show(found);
    return result;
  }

  function row(number) {
    const shown = kept;
    if (!shown.has(number)) {
      const asked = session.read(`row/${number}`);
      shown.set(number, asked);
      asked.catch(() => shown.delete(number)); // it is asked for again
    }
    return shown.get(number);
  }

  // --- What is shown

  function show(found) {
    if (state && found.revision < state.revision) return;
    if (!state || found.revision !== state.revision) kept = new Map();
    state = found;
    $("#source").textContent = state.source;
    $("#size").textContent = `${state.rows.toLocaleString("en")} rows, ${state.labelled.toLocaleString("en")} labelled`;
    $("#status").textContent = state.fitting ? "fitting …" : state.model ? `fitted in ${state.seconds.toFixed(1)} s` : "";
    $("#undo").disabled = !state.undo;
    $("#undo").title = state.undo ? `Undo “${state.undo}”` : "";
    if (state.error) say(state.error);
    showClasses();
    showAccuracy();
    showLists();
    if (current == null) advance();
    else showCurrent();
  }

  let lookedAt = false; // whether the current row was picked by the person, and not suggested
  function advance() {
    lookedAt = false;
    const free = state.queue.filter((row) => !passed.has(row));
    if (!free.length) passed = new Set();
    current = free[0] ?? state.queue[0] ?? null;
    map.point(current);
    showCurrent();
  }

  function look(number) {
    clearSelection();
    lookedAt = true;
    current = number;
    map.point(current);
    showCurrent();
  }

  // The doubtful label after the one that is looked at; the first again after the last.
  function lookAtDoubtful() {
    const rows = state.doubtful.map((item) => item.row);
    if (rows.length) look(rows[(rows.indexOf(current) + 1) % rows.length]);
  }

  const doubt = ({ given, suggested, probability }) => `without this label the model says ${quoted(suggested)} (${quoted(given)}: ${percent(probability)})`;

  function image(number, side) {
    const made = element("img", { alt: "", width: side, height: side, loading: "lazy", draggable: false });
    session.image(number).then((address) => { made.src = address; }, () => {}); // it was removed since: an empty frame
    return made;
  }

  function verdict(item) {
    if (item.given) return `your label: ${item.given}`;
    const mark = item.mark ? `${{ skip: "skipped", unsure: "unsure", none: "none of these" }[item.mark]}; ` : "";
    return mark + (item.predicted ? `model: ${item.predicted}, ${percent(item.probability)}` : "no prediction yet");
  }

  function columns(item, most) {
    const list = element("dl");
    for (const [name, value] of item.columns.slice(0, most)) list.append(element("dt", { textContent: name }), element("dd", { textContent: value }));
    return list;
  }

  async function showCurrent() {
    showGrid();
    $("#current").hidden = selection.length > 0;
    const number = current;
    if (number == null) {
      fill("#current", element("p", { textContent: "No row is left to suggest. Pick one on the map, or export." }));
      return;
    }
    const item = await attempt(() => row(number));
    if (!item || number !== current) return;
    const parts = [element("h2", { textContent: item.name }), element("p", { className: "verdict", textContent: verdict(item) })];
    if (state.images) parts.push(image(number, 200));
    for (const other of state.doubtful.filter(({ row }) => row === number)) parts.push(element("p", { className: "conflict", textContent: doubt(other) }));
    for (const [file, name] of item.conflicts) parts.push(element("p", { className: "conflict", textContent: `${file} says ${quoted(name)}` }));
    parts.push(columns(item, 60));
    fill("#current", ...parts);
  }

  async function card(number) {
    const item = await row(number);
    const button = element("button", { title: `${item.name}; ${verdict(item)}` });
    const longest = item.columns.reduce((best, [, value]) => (value.length > best.length ? value : best), "");
    button.append(
      state.images ? image(number, 64) : element("span", { className: "text", textContent: longest }),
      element("span", { className: "small", textContent: item.given ?? item.predicted ?? item.name }),
    );
    button.addEventListener("click", () => look(number));
    if (number === current) button.setAttribute("aria-current", "true");
    return element("li", {}, button);
  }

  let shownGrid = "";
  async function showGrid() {
    const rows = (selection.length ? selection : state.queue).slice(0, SHOWN);
    const key = JSON.stringify([rows, current, state.revision]);
    if (key === shownGrid) return;
    shownGrid = key;
    $("#upcoming").textContent = selection.length ? "Selected" : "Next";
    const cards = await attempt(() => Promise.all(rows.map(card)));
    if (cards && key === shownGrid) fill("#grid", ...cards);
  }

  function showClasses() {
    fill("#classes", ...state.classes.map(({ name, labels, share }, code) => {
      const swatch = element("i");
      swatch.style.background = map.color(code);
      const button = element("button", { title: `${counted(labels, "label")}, ${percent(share, 1)} of all rows` },
        swatch, element("span", { textContent: name }), element("small", { textContent: `${labels} · ${percent(share)}` }));
      if (code < 9) button.prepend(element("kbd", { textContent: code + 1 }));
      button.addEventListener("click", () => answer(name));
      return element("li", {}, button);
    }));
    $("#names").replaceChildren(...state.classes.map(({ name }) => element("option", { value: name })));
  }

  function showAccuracy() {
    const last = state.model ? state.curve.at(-1) : null;
    $("#expected").textContent = last ? percent(last[1]) : "–";
    $("#interval").textContent = last ? `${percent(last[2])} to ${percent(last[3])}` : "";
    const classes = state.classes.filter(({ labels }) => labels).length;
    let gain = "";
    if (!last) gain = classes < 2 ? "Label rows of two classes to see how accurate the predictions are." : "";
    else if (state.gain) {
      const [expected, low, high] = state.gain.map((value) => 100 * value);
      gain = `The next ${state.next_labels} labels are expected to add ${expected.toFixed(1)} points (${low.toFixed(1)} to ${high.toFixed(1)}).`;
      if (high < 1) gain += " You can stop here.";
    }
    $("#gain").textContent = gain;
    showCurve();
  }

  function showCurve() {
    const svg = $("#curve");
    const made = (name, attributes) => {
      const node = document.createElementNS("http://www.w3.org/2000/svg", name);
      for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
      return node;
    };
    const curve = state.curve;
    const most = Math.max(1, ...curve.map(([labels]) => labels));
    const place = (labels, value) => `${(6 + (188 * labels) / most).toFixed(1)},${(56 - 52 * value).toFixed(1)}`;
    const title = made("title", {});
    title.textContent = curve.length ? `Expected accuracy by number of labels, up to ${counted(most, "label")}` : "";
    const parts = [title, made("path", { d: "M6,56H194M6,4H194", class: "frame" })];
    if (curve.length) {
      const upper = curve.map(([labels, , , high]) => place(labels, high)), lower = curve.map(([labels, , low]) => place(labels, low));
      parts.push(made("polygon", { points: [...upper, ...lower.reverse()].join(" "), class: "band" }));
      parts.push(made("polyline", { points: curve.map(([labels, value]) => place(labels, value)).join(" "), class: "line" }));
      const [x, y] = place(curve.at(-1)[0], curve.at(-1)[1]).split(",");
      parts.push(made("circle", { cx: x, cy: y, r: 2.5, class: "last" }));
    }
    svg.replaceChildren(...parts);
  }

  function showLists() {
    $("#wrong").hidden = !state.doubtful.length;
    $("#wrong").replaceChildren(`${counted(state.doubtful.length, "label")} may be wrong `, element("kbd", { textContent: "d" }));
    const list = (selector, items, text) => {
      $(selector).hidden = !items.length;
      fill(`${selector} ul`, ...items.slice(0, LISTED).map((item) => {
        const button = element("button", { textContent: text(item) });
        button.addEventListener("click", () => look(item.row));
        return element("li", {}, button);
      }));
    };
    list("#doubts", state.doubtful, (item) => `row ${item.row + 1}: ${quoted(item.given)}; ${doubt(item)}`);
    list("#conflicts", state.conflicts, (item) => `row ${item.row + 1}: ${item.given ? quoted(item.given) : "no label"} here, ${item.others.map(([file, name]) => `${quoted(name)} in ${file}`).join(", ")}`);
  }

  // --- Answers

  async function answer(name) {
    await attempt(async () => {
      if (!selection.length) {
        if (current == null) return;
        const row = current;
        await act("label", { rows: [row], class: name });
        say(`Labelled ${quoted(name)}.`);
        if (row === current) advance();
        return;
      }
      const found = await act("preview", { rows: selection, class: name });
      if (found.disagree || found.relabelled) confirm(name, found);
      else await labelAll(name, selection);
    });
  }

  function confirm(name, found) {
    const others = found.predicted.filter(([other]) => other !== name).map(([other, rows]) => `${rows.toLocaleString("en")} ${quoted(other)}`).slice(0, 4).join(", ");
    let text = `Label ${counted(found.rows, "row")} ${quoted(name)}?`;
    if (found.disagree) text += ` ${found.disagree.toLocaleString("en")} of these ${found.rows.toLocaleString("en")} disagree with the model${others ? ` (${others})` : ""}.`;
    if (found.relabelled) text += ` ${counted(found.relabelled, "row")} with another label from you would change.`;
    $("#question").textContent = text;
    $("#confirm").hidden = false;
    $("#agreeing").disabled = !found.agreeing.length;
    pending = { name, agreeing: found.agreeing };
    $("#all").focus();
  }

  async function labelAll(name, rows) {
    await act("label", { rows, class: name });
    say(`Labelled ${counted(rows.length, "row")} ${quoted(name)}.`);
    clearSelection();
    advance();
  }

  function consent(choice) {
    const asked = pending;
    closeConfirm();
    if (choice === "all") attempt(() => labelAll(asked.name, selection));
    if (choice === "agreeing" && asked.agreeing.length) attempt(() => labelAll(asked.name, asked.agreeing));
  }

  function closeConfirm() {
    pending = null;
    $("#confirm").hidden = true;
    if ($("#confirm").contains(root.activeElement)) page.focus({ preventScroll: true });
  }

  async function mark(kind) {
    const rows = selection.length ? selection : current == null ? [] : [current];
    if (!rows.length) return;
    await attempt(async () => {
      await act("mark", { rows, mark: kind });
      clearSelection();
      advance();
    });
  }

  async function undo() {
    if (!state.undo) return;
    const what = await attempt(() => act("undo"));
    if (what) say(`Undone: ${what}`);
  }

  // --- Selection

  async function select(rows) {
    closeConfirm();
    if (!rows.length) return clearSelection();
    selection = rows;
    map.choose(rows);
    $("#selection").hidden = false;
    $("#chosen").textContent = `${counted(rows.length, "row")} selected: the next answer is for all of them.`;
    $("#shares").textContent = "";
    showCurrent();
    const found = await attempt(() => act("preview", { rows }));
    if (found && selection === rows) {
      const said = found.predicted.slice(0, 6).map(([name, n]) => `${quoted(name)} of ${n.toLocaleString("en")}`).join(", ");
      $("#shares").textContent = said ? `The model says ${said}.` : "";
    }
  }

  function clearSelection() {
    closeConfirm();
    drawOutline();
    if (!selection.length) return;
    selection = [];
    map.choose([]);
    $("#selection").hidden = true;
    showCurrent();
  }

  async function search(text) {
    await attempt(async () => {
      const rows = text.trim() ? await act("find", { text: text.trim() }) : [];
      if (text.trim() && !rows.length) say(`No row has “${text.trim()}” in it.`);
      await select(rows);
      $("#map").focus();
    });
  }

  // --- Mouse on the map

  let drag = null, drawn = [];
  function drawOutline(points = []) {
    $("#outline path").setAttribute("d", points.length > 1 ? `M${points.join("L")}Z` : "");
  }

  const at = (event) => {
    const box = $("#map").getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };

  $("#map").addEventListener("pointerdown", (event) => {
    if (event.button) return;
    $("#map").setPointerCapture(event.pointerId);
    drag = { start: at(event), last: at(event), kind: event.shiftKey ? "lasso" : tool, moved: false };
    drawn = [drag.start];
  });

  $("#map").addEventListener("pointermove", (event) => {
    const [x, y] = at(event);
    if (!drag) return hover(x, y);
    const [x0, y0] = drag.last;
    if (!drag.moved && Math.hypot(x - drag.start[0], y - drag.start[1]) < 4) return;
    drag.moved = true;
    if (drag.kind === "pan") {
      map.pan(x - x0, y - y0);
      drag.last = [x, y];
    } else if (drag.kind === "lasso") {
      if (Math.hypot(x - x0, y - y0) >= 3) { drawn.push([x, y]); drag.last = [x, y]; }
      drawOutline(drawn);
    } else {
      const [sx, sy] = drag.start;
      drawn = [[sx, sy], [x, sy], [x, y], [sx, y]];
      drawOutline(drawn);
    }
  });

  $("#map").addEventListener("pointerup", (event) => {
    const done = drag;
    drag = null;
    if (!done) return;
    if (!done.moved) {
      const found = map.rowAt(...at(event));
      if (found != null) look(found);
      else clearSelection();
    } else if (done.kind !== "pan") select(drawn.length > 2 ? map.rowsWithin(drawn) : []);
  });

  $("#map").addEventListener("pointercancel", () => { drag = null; drawOutline(); });
  $("#map").addEventListener("pointerleave", () => { hovered = null; $("#hover").hidden = true; });
  $("#map").addEventListener("wheel", (event) => {
    event.preventDefault();
    map.zoomAt(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.002)), ...at(event));
  }, { passive: false });

  let hovered = null;
  async function hover(x, y) {
    const found = map.rowAt(x, y);
    if (found === hovered) return;
    hovered = found;
    if (found == null) { $("#hover").hidden = true; return; }
    const item = await row(found).catch(() => null);
    if (!item || hovered !== found) return;
    const parts = [element("b", { textContent: item.name }), element("p", { textContent: verdict(item) })];
    if (map.flags[found] & DOUBTFUL) parts.push(element("p", { className: "conflict", textContent: "doubtful label" }));
    if (state.images) parts.push(image(found, 96));
    parts.push(columns(item, 6));
    const box = $("#hover");
    box.replaceChildren(...parts);
    box.hidden = false;
    const { clientWidth: w, clientHeight: h } = $("#place");
    box.style.left = `${x + 16 + box.offsetWidth > w ? Math.max(0, x - box.offsetWidth - 12) : x + 16}px`;
    box.style.top = `${Math.max(0, Math.min(y + 12, h - box.offsetHeight - 4))}px`;
  }

  function use(name) {
    tool = name;
    for (const button of page.querySelectorAll("[data-tool]")) button.setAttribute("aria-pressed", String(button.dataset.tool === name));
    $("#map").dataset.tool = name;
  }

  // --- Keys and buttons

  const KEYS = {
    u: undo,
    s: () => mark("skip"),
    "?": () => mark("unsure"),
    n: () => mark("none"),
    d: lookAtDoubtful,
    " ": next,
    "/": () => $("#text").select(),
    Enter: () => $("#name").select(),
    l: () => use("lasso"),
    r: () => use("rectangle"),
    m: () => use("pan"),
    v: () => select(map.rowsInView()),
    e: () => openExport(),
    h: () => $("#help").showModal(),
    0: () => map.whole(),
    "+": () => map.zoomAt(1.4),
    "=": () => map.zoomAt(1.4),
    "-": () => map.zoomAt(1 / 1.4),
    Escape: () => { clearSelection(); say("", true); page.focus({ preventScroll: true }); },
    ArrowLeft: () => map.pan(60, 0),
    ArrowRight: () => map.pan(-60, 0),
    ArrowUp: () => map.pan(0, 60),
    ArrowDown: () => map.pan(0, -60),
  };

  function next() {
    if (current != null && !lookedAt) passed.add(current);
    clearSelection();
    advance();
  }

  page.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !state) return;
    if ($("dialog[open]")) return;
    const typing = event.target.matches("input");
    if (typing) {
      if (event.key === "Escape") page.focus({ preventScroll: true });
      return;
    }
    if (pending) {
      const choice = { Enter: "all", a: "agreeing", Escape: "cancel" }[event.key];
      if (choice && !(event.key === "Enter" && event.target.matches("#confirm button:not(#all)"))) {
        event.preventDefault();
        consent(choice);
      }
      if (choice || event.key === "Tab") return;
    }
    if (event.target.matches("button") && (event.key === " " || event.key === "Enter")) return;
    if (event.key.startsWith("Arrow") && event.target.closest("aside, header")) return;
    const name = /^[1-9]$/.test(event.key) ? state.classes[event.key - 1]?.name : null;
    const work = name ? () => answer(name) : KEYS[event.key];
    if (!work || event.repeat && !event.key.startsWith("Arrow")) return;
    event.preventDefault();
    work();
  });

  function openExport() {
    $("#written").textContent = "";
    $("#export").showModal();
  }

  $("#undo").addEventListener("click", undo);
  $("#keys").addEventListener("click", () => $("#help").showModal());
  $("#save").addEventListener("click", openExport);
  $("#next").addEventListener("click", next);
  $("#wrong").addEventListener("click", lookAtDoubtful);
  $("#view").addEventListener("click", KEYS.v);
  $("#whole").addEventListener("click", () => map.whole());
  $("#clear").addEventListener("click", clearSelection);
  for (const choice of ["all", "agreeing", "cancel"]) $(`#${choice}`).addEventListener("click", () => consent(choice));
  for (const button of page.querySelectorAll("[data-tool]")) button.addEventListener("click", () => use(button.dataset.tool));
  for (const button of page.querySelectorAll("[data-mark]")) button.addEventListener("click", () => mark(button.dataset.mark));
  for (const button of page.querySelectorAll("[data-export]")) {
    button.addEventListener("click", async () => {
      $("#written").textContent = "Writing …";
      try {
        $("#written").textContent = `Written: ${await act("export", { what: button.dataset.export })}`;
      } catch (error) {
        $("#written").textContent = error.message;
      }
    });
  }
  $("#naming").addEventListener("submit", (event) => {
    event.preventDefault();
    const typed = $("#name").value.trim();
    if (!typed) return;
    const alike = state.classes.filter(({ name }) => name.toLowerCase().startsWith(typed.toLowerCase()));
    const exact = state.classes.find(({ name }) => name === typed);
    $("#name").value = "";
    page.focus({ preventScroll: true });
    answer(exact || alike.length !== 1 ? typed : alike[0].name);
  });
  $("#search").addEventListener("submit", (event) => {
    event.preventDefault();
    search($("#text").value);
  });
  const theme = matchMedia("(prefers-color-scheme: dark)");
  const recolor = () => { map.colors(); if (state) showClasses(); };
  theme.addEventListener("change", recolor);

  // --- Start

  async function start() {
    await session.read("state");
    if (!map.gl) say("This browser has no WebGL2: the map is not drawn. The queue works without it.", true);
    await refresh();
    session.follow((revision) => { if (revision !== painted) refresh(); }, (reason) => say(reason, true));
  }

  use("pan");
  start().catch((error) => say(error.message, true));
  return {
    map,
    get state() { return state; },
    get selection() { return selection; },
    get current() { return current; },
    look,
    say,
    close() {
      theme.removeEventListener("change", recolor);
      map.close();
    },
  };
}
