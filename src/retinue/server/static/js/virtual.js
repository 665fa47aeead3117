/* A list of any length in a box that scrolls: only what can be seen is in the document.
 *
 * Rows are { key, height? }; a row without a height has the usual one, and a row with `measured` is asked for
 * its own once it is drawn. Elements are kept by key and moved, so a change to one row costs that row.
 */

import { perFrame } from "./dom.js";

const OVERSCAN = 8;

export class VirtualList {
  constructor(scroller, { rowHeight, make, estimate = 160, update = undefined }) {
    this.scroller = scroller;
    this.rowHeight = rowHeight;
    this.estimate = estimate;
    this.make = make;
    this.update = update;
    /** The key of the row with the focus. */
    this.keep = undefined;
    /** Called after each drawing. */
    this.drawn = undefined;
    this.rows = [];
    this.offsets = new Float64Array(1);
    this.heights = new Map();
    this.elements = new Map();
    this.places = new Map();
    this.space = document.createElement("div");
    this.space.className = "virtual-space";
    this.space.setAttribute("role", "none");
    scroller.append(this.space);
    this.draw = perFrame(() => this.#draw());
    this.observer = new ResizeObserver((entries) => this.#measured(entries));
    this.sizes = new ResizeObserver(() => this.draw());
    this.sizes.observe(scroller);
    scroller.addEventListener("scroll", () => this.draw(), { passive: true });
  }

  /** Other rows. What is on the screen stays where it is, whatever was added above it. */
  set(rows) {
    const anchor = this.rows[this.#at(this.scroller.scrollTop)];
    const away = anchor ? this.scroller.scrollTop - this.offsets[this.places.get(anchor.key)] : 0;
    this.rows = rows;
    this.places = new Map();
    for (let index = 0; index < rows.length; index += 1) this.places.set(rows[index].key, index);
    this.#lay();
    const place = anchor ? this.places.get(anchor.key) : undefined;
    if (place !== undefined && this.scroller.scrollTop > 0) {
      const wanted = this.offsets[place] + away;
      if (Math.abs(wanted - this.scroller.scrollTop) > 0.5) this.scroller.scrollTop = wanted;
    }
    this.draw.cancel();
    this.#draw();
  }

  #lay() {
    const { rows } = this;
    const offsets = new Float64Array(rows.length + 1);
    for (let index = 0; index < rows.length; index += 1)
      offsets[index + 1] = offsets[index] + this.#height(rows[index]);
    this.offsets = offsets;
    this.space.style.height = `${offsets[rows.length]}px`;
  }

  #height(row) {
    if (row.measured) return this.heights.get(row.key) ?? this.estimate;
    return row.height ?? this.rowHeight;
  }

  /** The row at a distance from the top. */
  #at(y) {
    let low = 0;
    let high = this.rows.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.offsets[middle] <= y) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  #draw() {
    const { rows, offsets, scroller } = this;
    const top = scroller.scrollTop;
    // Read before anything is written: a size that is asked for in between would be worked out each time.
    const bottom = top + scroller.clientHeight + OVERSCAN * this.rowHeight;
    const first = Math.max(0, this.#at(top) - OVERSCAN);
    const seen = new Map();
    for (let index = first; index < rows.length && offsets[index] < bottom; index += 1) {
      this.#place(index, seen);
    }
    // The row with the focus stays in the document, or the keyboard would lose its place.
    const kept = this.keep === undefined ? undefined : this.places.get(this.keep);
    if (kept !== undefined && !seen.has(rows[kept].key)) this.#place(kept, seen);
    for (const [key, element] of this.elements) {
      if (seen.has(key)) continue;
      this.observer.unobserve(element);
      element.remove();
    }
    this.elements = seen;
    this.drawn?.();
  }

  #place(index, seen) {
    const row = this.rows[index];
    let element = this.elements.get(row.key);
    if (!element) {
      element = this.make(row);
      element.rowKey = row.key;
      element.classList.add("virtual-row");
      // In the order of the list, for those who read it with a screen reader.
      let after = null;
      for (const [key, other] of seen) if (this.places.get(key) < index) after = other;
      this.space.insertBefore(element, after ? after.nextSibling : this.space.firstChild);
      if (row.measured) this.observer.observe(element);
    }
    this.update?.(element, row, index);
    const top = `${this.offsets[index]}px`;
    if (element.style.top !== top) element.style.top = top;
    seen.set(row.key, element);
  }

  #measured(entries) {
    let changed = false;
    let above = 0;
    for (const { target } of entries) {
      const height = target.offsetHeight;
      const place = this.places.get(target.rowKey);
      if (!target.isConnected || place === undefined || height === 0) continue;
      const before = this.#height(this.rows[place]);
      if (Math.abs(before - height) < 1) continue;
      if (this.offsets[place] + before <= this.scroller.scrollTop) above += height - before;
      this.heights.set(target.rowKey, height);
      changed = true;
    }
    if (!changed) return;
    this.#lay();
    if (above) this.scroller.scrollTop += above;
    this.draw();
  }

  /** Bring a row into sight. `margin` keeps some room around it. */
  reveal(key, { margin = 0, align = "nearest" } = {}) {
    const place = this.places.get(key);
    if (place === undefined) return false;
    const { scroller } = this;
    const top = this.offsets[place];
    const bottom = this.offsets[place + 1];
    const room = scroller.clientHeight;
    if (align === "center") scroller.scrollTop = top - room / 2;
    else if (top - margin < scroller.scrollTop) scroller.scrollTop = top - margin;
    else if (bottom + margin > scroller.scrollTop + room)
      scroller.scrollTop = Math.min(bottom + margin - room, top);
    this.draw();
    return true;
  }

  destroy() {
    this.draw.cancel();
    this.observer.disconnect();
    this.sizes.disconnect();
  }
}
