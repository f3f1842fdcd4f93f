// A map of many points by WebGL2: positions are sent once, colors and opacities with each fit.

// Colors of classes, for a light and a dark background; they repeat after the last.
export const PALETTES = {
  light: ["#1f6fc4", "#d9691a", "#2a8f3c", "#c2283a", "#7b4bb5", "#8a5a3c", "#d24fa0", "#6b6f00", "#0b8f9c", "#4a4e9e", "#a36a00", "#5f7d8c"],
  dark: ["#5aa9ff", "#ff9a4d", "#57cf6b", "#ff6b78", "#b58cf0", "#c9976f", "#ff8ad0", "#cfcf3d", "#3fd3e0", "#959af5", "#e8b04a", "#9fbccb"],
};
export const NO_CLASS = 65535;
export const GIVEN = 1, SUGGESTED = 2, MARKED = 4, DOUBTFUL = 8, CHOSEN = 16, CURRENT = 32;

const VERTEX = `#version 300 es
layout(location = 0) in vec2 from;
layout(location = 1) in vec2 to;
layout(location = 2) in uint code;
layout(location = 3) in float opacity;
layout(location = 4) in uint flags;
uniform vec2 scale, offset;
uniform float moved, size, pixel;
uniform bool front;
uniform vec3 palette[12], plain;
uniform bool choosing;
flat out vec4 color;
flat out uint mark;
flat out float width;
void main() {
  mark = front ? flags : flags & 16u; // rings are drawn again, over all other points
  vec3 hue = code == 65535u ? plain : palette[code % 12u];
  bool chosen = (flags & 16u) != 0u;
  color = vec4(hue, chosen ? 0.95 : (code == 65535u ? 0.45 : 0.15 + 0.75 * opacity) * (choosing ? 0.25 : 1.0));
  if ((mark & 32u) != 0u) width = max(3.0 * size, 22.0 * pixel);
  else if ((mark & 9u) == 9u) width = max(2.0 * size, 14.0 * pixel);
  else if ((mark & 11u) != 0u) width = max(1.5 * size, ((mark & 1u) != 0u ? 8.0 : 11.0) * pixel);
  else width = size;
  gl_PointSize = width;
  gl_Position = vec4(mix(from, to, moved) * scale + offset, 0.0, 1.0);
}`;

const FRAGMENT = `#version 300 es
precision mediump float;
flat in vec4 color;
flat in uint mark;
flat in float width;
uniform vec3 ink, accent, alarm;
out vec4 result;
void main() {
  float r = length(gl_PointCoord - 0.5) * width, edge = 0.5 * width;
  float disk = clamp(edge - r, 0.0, 1.0);
  bool given = (mark & 1u) != 0u, current = (mark & 32u) != 0u;
  result = vec4(color.rgb, 1.0) * color.a * disk;
  if (given || current || (mark & 2u) != 0u) {
    float ring = clamp(r - edge + width * 0.2, 0.0, 1.0) * disk;
    float core = given ? disk : clamp(0.5 * edge - r + 0.5, 0.0, 1.0);
    vec3 line = current || !given ? accent : (mark & 8u) != 0u ? alarm : ink;
    result = vec4(line, 1.0) * ring + vec4(color.rgb, 1.0) * (given ? 1.0 : color.a) * core * (1.0 - ring);
  }
}`;

const MOVE_MS = 700;
const CELLS = 128;
// While the view moves, frames that take longer draw fewer points, until it has been still for a while.
const SLOW_MS = 60, STILL_MS = 200, LEAST_POINTS = 10000;

export class PointMap {
  // Draws points on a canvas; `changed` is called after the view changed.
  constructor(canvas, changed) {
    this.canvas = canvas;
    this.changed = changed;
    this.n = 0;
    this.zoom = 1;
    this.center = [0, 0];
    this.frames = 0;
    this.share = 1;
    this.movedAt = -Infinity;
    this.gl = canvas.getContext("webgl2", { antialias: false, premultipliedAlpha: true });
    if (this.gl) this.prepare();
    canvas.addEventListener("webglcontextlost", (event) => event.preventDefault());
    canvas.addEventListener("webglcontextrestored", () => this.restore());
    this.resized = new ResizeObserver(() => this.draw());
    this.resized.observe(canvas);
  }

  restore() {
    this.prepare();
    if (!this.to || !this.classes) return;
    this.upload(0, this.to);
    this.upload(1, this.to);
    this.upload(2, this.classes);
    this.upload(3, this.opacities);
    this.shuffle();
    this.flagsChanged();
  }

  // Browsers keep a limited number of drawing contexts.
  close() {
    this.resized.disconnect();
    cancelAnimationFrame(this.requested);
    clearTimeout(this.still);
    this.gl?.getExtension("WEBGL_lose_context")?.loseContext();
  }

  prepare() {
    const gl = this.gl;
    const program = gl.createProgram();
    for (const [kind, source] of [[gl.VERTEX_SHADER, VERTEX], [gl.FRAGMENT_SHADER, FRAGMENT]]) {
      const shader = gl.createShader(kind);
      gl.shaderSource(shader, source);
      gl.compileShader(shader);
      gl.attachShader(program, shader);
    }
    gl.linkProgram(program);
    if (!gl.getProgramParameter(program, gl.LINK_STATUS)) throw new Error(gl.getProgramInfoLog(program));
    gl.useProgram(program);
    this.at = Object.fromEntries(
      ["scale", "offset", "moved", "size", "pixel", "front", "choosing", "palette", "plain", "ink", "accent", "alarm"]
        .map((name) => [name, gl.getUniformLocation(program, name)]),
    );
    this.buffers = [0, 1, 2, 3, 4].map((place) => {
      const buffer = gl.createBuffer();
      gl.bindBuffer(gl.ARRAY_BUFFER, buffer);
      gl.enableVertexAttribArray(place);
      if (place < 2) gl.vertexAttribPointer(place, 2, gl.FLOAT, false, 0, 0);
      else if (place === 2) gl.vertexAttribIPointer(place, 1, gl.UNSIGNED_SHORT, 0, 0);
      else if (place === 3) gl.vertexAttribPointer(place, 1, gl.UNSIGNED_BYTE, true, 0, 0);
      else gl.vertexAttribIPointer(place, 1, gl.UNSIGNED_BYTE, 0, 0);
      return buffer;
    });
    this.rings = gl.createBuffer();
    this.order = gl.createBuffer();
    gl.enable(gl.BLEND);
    gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
    this.colors();
  }

  // Colors of the theme, from the style sheet.
  colors() {
    const gl = this.gl;
    const style = getComputedStyle(this.canvas);
    const rgb = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16) / 255);
    this.palette = PALETTES[style.getPropertyValue("--theme").trim()] ?? PALETTES.light;
    if (!gl) return;
    gl.uniform3fv(this.at.palette, this.palette.flatMap(rgb));
    for (const name of ["plain", "ink", "accent", "alarm"]) gl.uniform3fv(this.at[name], rgb(style.getPropertyValue(`--${name}`).trim()));
    this.draw();
  }

  color(code) {
    return this.palette[code % this.palette.length];
  }

  upload(place, values) {
    const gl = this.gl;
    if (!gl) return;
    gl.bindBuffer(gl.ARRAY_BUFFER, this.buffers[place]);
    gl.bufferData(gl.ARRAY_BUFFER, values, gl.DYNAMIC_DRAW);
  }

  list(buffer, rows) {
    const gl = this.gl;
    if (!gl) return;
    gl.bindBuffer(gl.ELEMENT_ARRAY_BUFFER, buffer);
    gl.bufferData(gl.ELEMENT_ARRAY_BUFFER, rows, gl.DYNAMIC_DRAW);
  }

  // New positions; points move there.
  place(positions) {
    const before = this.to && this.to.length === positions.length ? this.positionsNow() : positions;
    this.n = positions.length / 2;
    if (!this.to) this.shuffle();
    this.to = positions;
    this.from = before;
    this.flags ??= new Uint8Array(this.n);
    this.chosen ??= new Uint8Array(this.n);
    this.upload(0, before);
    this.upload(1, positions);
    this.started = before === positions || matchMedia("(prefers-reduced-motion: reduce)").matches ? -Infinity : performance.now();
    this.index();
    this.draw();
  }

  // Any first part of the rows in this order is a random sample of them.
  shuffle() {
    const order = Uint32Array.from({ length: this.n }, (_, i) => i);
    for (let i = this.n - 1; i > 0; i--) {
      const j = Math.floor(Math.random() * (i + 1));
      [order[i], order[j]] = [order[j], order[i]];
    }
    this.list(this.order, order);
  }

  positionsNow() {
    const t = this.progress();
    return t >= 1 ? this.to : this.to.map((value, i) => this.from[i] + t * (value - this.from[i]));
  }

  progress() {
    const t = Math.min(1, (performance.now() - this.started) / MOVE_MS);
    return t * t * (3 - 2 * t);
  }

  // Class codes, opacities and flags, as the server sends them.
  paint(bytes) {
    const n = bytes.byteLength / 4;
    this.classes = new Uint16Array(bytes, 0, n);
    this.flags = new Uint8Array(bytes, 3 * n, n);
    this.upload(2, this.classes);
    this.opacities = new Uint8Array(bytes, 2 * n, n);
    this.upload(3, this.opacities);
    this.flagsChanged();
  }

  flagsChanged() {
    this.selected = 0;
    const flags = this.flags.slice();
    for (let i = 0; i < this.n; i++) if (this.chosen[i]) { flags[i] |= CHOSEN; this.selected++; }
    if (this.current != null) flags[this.current] |= CURRENT;
    this.upload(4, flags);
    const ringed = [];
    for (let i = 0; i < this.n; i++) if (flags[i] & (GIVEN | SUGGESTED)) ringed.push(i);
    if (this.current != null) ringed.push(this.current); // over all others
    this.ringed = ringed.length;
    this.list(this.rings, Uint32Array.from(ringed));
    this.draw();
  }

  choose(rows) {
    this.chosen.fill(0);
    for (const row of rows) this.chosen[row] = 1;
    this.flagsChanged();
  }

  point(row) {
    this.current = row;
    if (this.flags) this.flagsChanged();
  }

  draw() {
    if (this.requested || !this.to || !this.classes) return;
    this.requested = requestAnimationFrame(() => { this.requested = 0; this.render(); });
  }

  render() {
    const { gl, canvas } = this;
    this.frames++;
    const ratio = devicePixelRatio || 1;
    const width = Math.round(canvas.clientWidth * ratio), height = Math.round(canvas.clientHeight * ratio);
    if (!gl || !width || !height) return;
    if (canvas.width !== width || canvas.height !== height) { canvas.width = width; canvas.height = height; }
    gl.viewport(0, 0, width, height);
    gl.clearColor(0, 0, 0, 0);
    gl.clear(gl.COLOR_BUFFER_BIT);
    const [sx, sy] = this.scales();
    const t = this.progress();
    gl.uniform2f(this.at.scale, sx, sy);
    gl.uniform2f(this.at.offset, -this.center[0] * sx, -this.center[1] * sy);
    gl.uniform1f(this.at.moved, t);
    gl.uniform1f(this.at.size, ratio * this.pointSize());
    gl.uniform1f(this.at.pixel, ratio);
    gl.uniform1i(this.at.choosing, this.selected > 0 ? 1 : 0);
    gl.uniform1i(this.at.front, 0);
    const now = performance.now(), moving = t < 1 || now - this.movedAt < STILL_MS;
    if (moving && this.share < 1) {
      gl.bindBuffer(gl.ELEMENT_ARRAY_BUFFER, this.order);
      gl.drawElements(gl.POINTS, Math.ceil(this.share * this.n), gl.UNSIGNED_INT, 0);
    } else gl.drawArrays(gl.POINTS, 0, this.n);
    gl.uniform1i(this.at.front, 1);
    gl.bindBuffer(gl.ELEMENT_ARRAY_BUFFER, this.rings);
    gl.drawElements(gl.POINTS, this.ringed, gl.UNSIGNED_INT, 0);
    if (t < 1) this.draw();
    if (moving) this.measure(now);
  }

  // The next frame comes late if this one takes long to draw.
  measure(start) {
    requestAnimationFrame(() => {
      const took = performance.now() - start;
      const factor = took > SLOW_MS ? SLOW_MS / took : took < SLOW_MS / 2 ? 1.1 : 1;
      this.share = Math.min(1, Math.max(LEAST_POINTS / this.n, this.share * factor));
    });
    clearTimeout(this.still);
    if (this.share < 1) this.still = setTimeout(() => this.draw(), STILL_MS + 20);
  }

  pointSize() {
    return Math.min(12, Math.max(1.5, Math.min(7, 420 / Math.sqrt(this.n))) * Math.sqrt(this.zoom));
  }

  // Factors from positions to clip space, with square units and a margin.
  scales() {
    const { clientWidth: w, clientHeight: h } = this.canvas;
    const unit = 0.9 * this.zoom * Math.min(w, h);
    return [unit / w, unit / h];
  }

  // Pixels of the canvas to positions, and back.
  toMap(x, y) {
    const [sx, sy] = this.scales();
    const { clientWidth: w, clientHeight: h } = this.canvas;
    return [((2 * x) / w - 1) / sx + this.center[0], (1 - (2 * y) / h) / sy + this.center[1]];
  }

  toPixels(row) {
    const [sx, sy] = this.scales();
    const { clientWidth: w, clientHeight: h } = this.canvas;
    return [(((this.to[2 * row] - this.center[0]) * sx + 1) * w) / 2, ((1 - (this.to[2 * row + 1] - this.center[1]) * sy) * h) / 2];
  }

  pan(dx, dy) {
    const [x0, y0] = this.toMap(0, 0), [x1, y1] = this.toMap(dx, dy);
    this.center = [this.center[0] - (x1 - x0), this.center[1] - (y1 - y0)];
    this.limit();
  }

  zoomAt(factor, x = this.canvas.clientWidth / 2, y = this.canvas.clientHeight / 2) {
    const before = this.toMap(x, y);
    this.zoom = Math.min(200, Math.max(0.8, this.zoom * factor));
    const after = this.toMap(x, y);
    this.center = this.center.map((value, i) => value + before[i] - after[i]);
    this.limit();
  }

  whole() {
    this.zoom = 1;
    this.center = [0, 0];
    this.limit();
  }

  limit() {
    this.center = this.center.map((value) => Math.min(1.2, Math.max(-1.2, value)));
    this.movedAt = performance.now();
    this.draw();
    this.changed();
  }

  // Points sorted by the cells of a grid, to find the one under the mouse.
  index() {
    const cells = new Uint32Array(this.n);
    this.starts = new Uint32Array(CELLS * CELLS + 1);
    for (let i = 0; i < this.n; i++) {
      cells[i] = this.cell(this.to[2 * i]) + CELLS * this.cell(this.to[2 * i + 1]);
      this.starts[cells[i] + 1]++;
    }
    for (let i = 0; i < CELLS * CELLS; i++) this.starts[i + 1] += this.starts[i];
    const next = this.starts.slice();
    this.sorted = new Uint32Array(this.n);
    for (let i = 0; i < this.n; i++) this.sorted[next[cells[i]]++] = i;
  }

  cell(value) {
    return Math.min(CELLS - 1, Math.max(0, Math.floor(((value + 1.2) / 2.4) * CELLS)));
  }

  // The row nearest to a pixel, within some pixels; null if there is none.
  rowAt(x, y, reach = 9) {
    if (!this.sorted) return null;
    const [mx, my] = this.toMap(x, y), [left, top] = this.toMap(x - reach, y - reach), [right, bottom] = this.toMap(x + reach, y + reach);
    let best = null, least = (mx - left) ** 2;
    for (let v = this.cell(bottom); v <= this.cell(top); v++) {
      for (let u = this.cell(left); u <= this.cell(right); u++) {
        for (let k = this.starts[u + CELLS * v]; k < this.starts[u + CELLS * v + 1]; k++) {
          const row = this.sorted[k];
          const d = (this.to[2 * row] - mx) ** 2 + (this.to[2 * row + 1] - my) ** 2;
          if (d < least) { least = d; best = row; }
        }
      }
    }
    return best;
  }

  // Rows within a polygon of pixels.
  rowsWithin(pixels) {
    const polygon = pixels.map(([x, y]) => this.toMap(x, y));
    const xs = polygon.map(([x]) => x), ys = polygon.map(([, y]) => y);
    const left = Math.min(...xs), right = Math.max(...xs), low = Math.min(...ys), high = Math.max(...ys);
    const rows = [];
    for (let row = 0; row < this.n; row++) {
      const x = this.to[2 * row], y = this.to[2 * row + 1];
      if (x < left || x > right || y < low || y > high) continue;
      let inside = false;
      for (let i = 0, j = polygon.length - 1; i < polygon.length; j = i++) {
        const [xi, yi] = polygon[i], [xj, yj] = polygon[j];
        if (yi > y !== yj > y && x < ((xj - xi) * (y - yi)) / (yj - yi) + xi) inside = !inside;
      }
      if (inside) rows.push(row);
    }
    return rows;
  }

  rowsInView() {
    const { clientWidth: w, clientHeight: h } = this.canvas;
    return this.rowsWithin([[0, 0], [w, 0], [w, h], [0, h]]);
  }
}
