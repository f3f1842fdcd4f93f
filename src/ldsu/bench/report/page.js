"use strict";
(() => {
  const root = document.documentElement;
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const one = (selector, within = document) => within.querySelector(selector);

  // Remembered between visits where the browser allows it; a page opened from disk may not.
  const memory = {
    get(key) { try { return localStorage.getItem(key); } catch { return null; } },
    set(key, value) { try { localStorage.setItem(key, value); } catch { /* not kept */ } },
  };

  // Which score, which choice of parameters, whose figures, which colors.
  const { firstMetric, firstSelection } = document.body.dataset;
  const state = { metric: firstMetric, selection: firstSelection, paper: true, theme: memory.get("ldsu-theme") || "auto" };

  function apply() {
    if (state.theme === "auto") delete root.dataset.theme; else root.dataset.theme = state.theme;
    document.body.classList.toggle("no-paper", !state.paper);
    for (const button of all("[data-control]")) {
      const value = state[button.dataset.control];
      button.setAttribute("aria-pressed", String(button.dataset.value ? button.dataset.value === value : value));
    }
    for (const part of all("[data-metric], [data-selection]")) {
      const { metric, selection } = part.dataset;
      part.hidden = Boolean((metric && metric !== state.metric) || (selection && selection !== state.selection));
    }
    hideTip();
    document.dispatchEvent(new Event("repaint"));
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-control]");
    if (!button) return;
    const { control, value } = button.dataset;
    state[control] = value || !state[control];
    if (control === "theme") memory.set("ldsu-theme", value);
    apply();
  });

  // Sorting: the same order in every table, so that it stays when the score is changed.
  function sort(column, direction) {
    for (const table of all("table.scores")) {
      const body = table.tBodies[0];
      const key = (row) => {
        const text = row.cells[column].dataset.v;
        return text === undefined ? null : Number(text);
      };
      const rows = [...body.rows].sort((a, b) => {
        const [x, y] = [key(a), key(b)];
        if (x === null || y === null) return (x === null) - (y === null); // empty cells last, whichever way
        return direction * (x - y) || a.dataset.order - b.dataset.order;
      });
      body.append(...rows);
      rows.forEach((row, r) => { for (const cell of all(".cell", row)) cell.dataset.r = r; });
      table.classList.toggle("sorted", column !== 0 || direction < 0);
      all("thead th", table).forEach((head, i) => {
        head.setAttribute("aria-sort", i !== column ? "none" : direction > 0 ? "ascending" : "descending");
      });
    }
  }

  for (const button of all("table.scores thead button")) {
    button.addEventListener("click", () => {
      const head = button.closest("th");
      const now = head.getAttribute("aria-sort");
      const scores = head.cellIndex > 1; // best first for scores, smallest first for data and labels
      const first = scores ? "descending" : "ascending";
      const next = now === "none" ? first : now === "ascending" ? "descending" : "ascending";
      sort(head.cellIndex, next === "ascending" ? 1 : -1);
    });
  }

  // One tab stop a table or chart; arrow keys move inside.
  const marks = (box) => all("[data-r]", box);
  const ARROWS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

  function neighbor(box, from, [dr, dc]) {
    const place = (mark) => [Number(mark.dataset.r), Number(mark.dataset.c)];
    const [r, c] = place(from);
    let best = null, least = Infinity;
    for (const mark of marks(box)) {
      const [mr, mc] = place(mark);
      const ahead = dc ? mr === r && Math.sign(mc - c) === dc : Math.sign(mr - r) === dr;
      const distance = 1000 * Math.abs(mr - r) + Math.abs(mc - c);
      if (ahead && distance < least) [best, least] = [mark, distance];
    }
    return best;
  }

  for (const box of all("table.scores, svg.chart")) {
    marks(box).forEach((mark, i) => {
      mark.setAttribute("tabindex", i ? "-1" : "0");
      if (mark.matches("button")) return;
      mark.setAttribute("role", "img");
      mark.setAttribute("aria-label", mark.dataset.tip);
    });
    box.addEventListener("keydown", (event) => {
      const from = event.target.closest("[data-r]");
      if (!from || event.ctrlKey || event.metaKey || event.altKey) return;
      let to = null;
      if (ARROWS[event.key]) to = neighbor(box, from, ARROWS[event.key]);
      else if (event.key === "Home" || event.key === "End") {
        const row = marks(box).filter((mark) => mark.dataset.r === from.dataset.r);
        to = event.key === "Home" ? row[0] : row[row.length - 1];
      } else return;
      event.preventDefault();
      if (to) to.focus();
    });
    box.addEventListener("focusin", (event) => {
      const mark = event.target.closest("[data-r]");
      if (!mark) return;
      for (const other of marks(box)) if (other.tabIndex === 0) other.tabIndex = -1;
      mark.tabIndex = 0;
    });
  }

  // Tooltip, on hover and on focus; Escape closes it.
  const tip = one("#tip");
  let tipOwner = null;

  function place(box, target) {
    const gap = 8, { width, height } = box.getBoundingClientRect();
    const x = Math.min(Math.max(gap, (target.left + target.right - width) / 2), innerWidth - width - gap);
    const above = target.top - height - gap;
    box.style.left = `${Math.max(gap, x)}px`;
    box.style.top = `${above >= gap ? above : Math.min(target.bottom + gap, innerHeight - height - gap)}px`;
  }

  function showTip(owner) {
    if (tipOwner !== owner) hideTip();
    tipOwner = owner;
    tip.textContent = owner.dataset.tip;
    tip.hidden = false;
    place(tip, owner.getBoundingClientRect());
    if (owner.matches("button")) owner.setAttribute("aria-describedby", "tip");
    light(owner, true);
  }

  function hideTip() {
    if (!tipOwner) return;
    tipOwner.removeAttribute("aria-describedby");
    light(tipOwner, false);
    tipOwner = null;
    tip.hidden = true;
  }

  // The line a mark belongs to, and its name, stand out.
  function light(owner, on) {
    const line = owner.closest("g[class]"), chart = owner.closest("svg.chart");
    if (!chart || !line.matches(".line")) return;
    chart.classList.toggle("lit", on);
    const style = line.classList[0];
    for (const part of all(`g.${style}`, chart)) part.classList.toggle("lit", on);
  }

  document.addEventListener("pointerover", (event) => {
    const owner = event.target.closest("[data-tip]");
    if (owner) showTip(owner); else hideTip();
  });
  document.addEventListener("focusin", (event) => {
    const owner = event.target.closest("[data-tip]");
    if (owner) showTip(owner);
  });
  document.addEventListener("focusout", hideTip);
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hideTip(); });
  // A focused mark takes its tooltip along: moving by keyboard may scroll.
  document.addEventListener("scroll", () => {
    if (tipOwner && tipOwner === document.activeElement) place(tip, tipOwner.getBoundingClientRect());
    else hideTip();
  }, { capture: true, passive: true });

  // Features in the plane.
  const data = JSON.parse(one("#pictures-data").textContent);
  const stage = one("#stage");
  if (stage && data.length) {
    const probe = document.createElement("i");
    probe.hidden = true;
    stage.append(probe);
    const color = (value) => { probe.style.color = value; return getComputedStyle(probe).color; };
    const chosen = one("#picture-choice"), planes = one(".planes", stage), legend = one(".classes", stage);
    const said = one("#picked");
    const card = document.createElement("div");
    card.id = "card";
    card.hidden = true;
    card.append(document.createElement("div"), document.createElement("span"));
    document.body.append(card);
    let picture = null, canvases = [], active = -1, lit = -1;

    const isDark = () => state.theme === "dark" || (state.theme === "auto" && matchMedia("(prefers-color-scheme: dark)").matches);
    function classColor(k, count) {
      if (count <= 12) return color(`var(--s${k + 1})`);
      const lightness = (isDark() ? [0.8, 0.66] : [0.58, 0.42])[k % 2];
      return `oklch(${lightness} 0.15 ${Math.round((360 * k) / count)})`;
    }
    const SIGNS = ["●", "■", "▲"];
    const shape = (k) => (picture.classes.length > 12 ? k % 3 : 0);

    function draw() {
      if (!picture) return;
      const colors = picture.classes.map((_, k) => classColor(k, picture.classes.length));
      const ink = color("var(--ink)");
      all("button", legend).forEach((button, k) => button.style.setProperty("--dot", colors[k]));
      for (const canvas of canvases) {
        const size = canvas.clientWidth, scale = devicePixelRatio || 1;
        if (!size) continue;
        canvas.width = canvas.height = Math.round(size * scale);
        const g = canvas.getContext("2d");
        g.scale(scale, scale);
        const at = (i) => spot(canvas, i);
        const order = picture.y.map((_, i) => i).sort((a, b) => (picture.y[a] === lit) - (picture.y[b] === lit));
        for (const i of order) {
          const [x, y] = at(i), k = picture.y[i];
          g.globalAlpha = lit < 0 ? 0.85 : k === lit ? 1 : 0.13;
          g.fillStyle = colors[k];
          g.beginPath();
          if (shape(k) === 1) g.rect(x - 2.6, y - 2.6, 5.2, 5.2);
          else if (shape(k) === 2) { g.moveTo(x, y - 3.6); g.lineTo(x + 3.4, y + 2.6); g.lineTo(x - 3.4, y + 2.6); }
          else g.arc(x, y, 3, 0, 7);
          g.fill();
        }
        if (active >= 0) {
          const [x, y] = at(active);
          g.globalAlpha = 1;
          g.strokeStyle = ink;
          g.lineWidth = 2;
          g.beginPath();
          g.arc(x, y, 7, 0, 7);
          g.stroke();
        }
      }
    }

    function spot(canvas, i) {
      const size = canvas.clientWidth, edge = 10, step = (size - 2 * edge) / 999;
      return [edge + canvas.panel.x[i] * step, edge + canvas.panel.y[i] * step];
    }

    function nearest(canvas, x, y, wanted = () => true) {
      let best = -1, least = Infinity;
      picture.y.forEach((_, i) => {
        const [px, py] = spot(canvas, i), distance = (px - x) ** 2 + (py - y) ** 2;
        if (distance < least && wanted(px - x, py - y, i)) [best, least] = [i, distance];
      });
      return [best, Math.sqrt(least)];
    }

    function pick(canvas, i, aloud) {
      if (i === active && !card.hidden) return;
      active = i;
      const name = picture.classes[picture.y[i]], sheet = picture.thumbnails;
      const [image, label] = card.children;
      label.textContent = name;
      image.hidden = !sheet;
      if (sheet) {
        const zoom = Math.max(1, Math.round(88 / Math.max(sheet.width, sheet.height)));
        const rows = Math.ceil(picture.y.length / sheet.columns);
        Object.assign(image.style, {
          width: `${sheet.width * zoom}px`,
          height: `${sheet.height * zoom}px`,
          backgroundImage: `url(${sheet.src})`,
          backgroundSize: `${sheet.width * sheet.columns * zoom}px ${sheet.height * rows * zoom}px`,
          backgroundPosition: `${-(i % sheet.columns) * sheet.width * zoom}px ${-Math.floor(i / sheet.columns) * sheet.height * zoom}px`,
        });
      }
      card.hidden = false;
      placeCard(canvas);
      if (aloud) said.textContent = `Point ${i + 1} of ${picture.y.length}: ${name}`;
      draw();
    }

    function placeCard(canvas) {
      const box = canvas.getBoundingClientRect(), [x, y] = spot(canvas, active);
      place(card, { left: box.left + x - 8, right: box.left + x + 8, top: box.top + y - 8, bottom: box.top + y + 8 });
    }

    function drop() {
      if (active < 0) return;
      active = -1;
      card.hidden = true;
      draw();
    }

    function show(index) {
      picture = data[index];
      active = lit = -1;
      card.hidden = true;
      planes.replaceChildren();
      canvases = picture.panels.map((panel) => {
        const figure = document.createElement("figure"), caption = document.createElement("figcaption");
        const canvas = document.createElement("canvas"), small = document.createElement("span");
        small.textContent = panel.caption;
        caption.append(panel.name, small);
        canvas.tabIndex = 0;
        canvas.panel = panel;
        canvas.setAttribute("role", "application");
        canvas.setAttribute("aria-label", `${picture.title}, ${panel.name}: ${picture.y.length} points in the plane. Arrow keys move from point to point.`);
        canvas.addEventListener("pointermove", (event) => {
          const [i, distance] = nearest(canvas, event.offsetX, event.offsetY);
          if (distance < 14) pick(canvas, i, false); else drop();
        });
        canvas.addEventListener("pointerleave", drop);
        canvas.addEventListener("focus", () => {
          if (canvas.matches(":focus-visible")) pick(canvas, active < 0 ? 0 : active, true);
        });
        canvas.addEventListener("blur", drop);
        canvas.addEventListener("keydown", (event) => {
          if (event.key === "Escape") { card.hidden = true; return; }
          if (!ARROWS[event.key]) return;
          event.preventDefault();
          const [down, right] = ARROWS[event.key];
          const from = active < 0 ? 0 : active, [x, y] = spot(canvas, from);
          // The nearest within a quarter turn of the way the arrow points.
          const [to] = nearest(canvas, x, y, (dx, dy, i) => {
            const along = dx * right + dy * down, across = Math.abs(dx * down) + Math.abs(dy * right);
            return i !== from && along > 0 && along >= across;
          });
          if (to >= 0) pick(canvas, to, true);
        });
        figure.append(caption, canvas);
        planes.append(figure);
        return canvas;
      });
      legend.replaceChildren(...picture.classes.map((name, k) => {
        const button = document.createElement("button"), dot = document.createElement("i");
        button.type = "button";
        button.setAttribute("aria-pressed", "false");
        dot.textContent = SIGNS[shape(k)];
        dot.setAttribute("aria-hidden", "true");
        button.append(dot, name);
        button.addEventListener("click", () => {
          lit = lit === k ? -1 : k;
          all("button", legend).forEach((other, j) => other.setAttribute("aria-pressed", String(j === lit)));
          draw();
        });
        return button;
      }));
      one("#picture-labels").textContent = picture.labels;
      one("#picture-count").textContent = picture.y.length;
      draw();
    }

    data.forEach((entry, i) => chosen.append(new Option(entry.title, i)));
    chosen.addEventListener("change", () => show(Number(chosen.value)));
    document.addEventListener("repaint", draw);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
    addEventListener("resize", draw);
    document.addEventListener("scroll", () => {
      const canvas = canvases.find((one) => one === document.activeElement);
      if (canvas && active >= 0) placeCard(canvas); else drop();
    }, { capture: true, passive: true });
    show(0);
  }

  apply();
})();
