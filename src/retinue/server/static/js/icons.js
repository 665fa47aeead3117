/* The page's own icons: strokes on a grid of 16, in the colour of the text beside them. */

import { s } from "./dom.js";

const SHAPES = {
  ask: "M2.5 3.5h11v7h-6l-3 2.6v-2.6h-2z",
  runs: "M2.5 4h11M2.5 8h11M2.5 12h7",
  approvals: "M8 1.8 13.2 4v3.6c0 3.2-2.1 5.3-5.2 6.6-3.1-1.3-5.2-3.4-5.2-6.6V4zM5.7 7.9l1.7 1.7 3-3.3",
  agents:
    "M5.6 7.2a2.3 2.3 0 1 0 0-4.6 2.3 2.3 0 0 0 0 4.6zM1.6 13c.3-2.4 1.9-3.7 4-3.7s3.7 1.3 4 3.7M10.6 3a2 2 0 0 1 .3 3.9M11.7 9.5c1.5.4 2.5 1.6 2.7 3.3",
  stats: "M2.5 13.5h11M4.5 11V7.5M8 11V3.5M11.5 11V6",
  settings:
    "M2.5 4.5h6M12 4.5h1.5M2.5 11.5h1.5M7.5 11.5h6M10.2 6.2a1.7 1.7 0 1 0 0-3.4 1.7 1.7 0 0 0 0 3.4zM5.8 13.2a1.7 1.7 0 1 0 0-3.4 1.7 1.7 0 0 0 0 3.4z",
  steps: "M3 3h4M6 8h7M6 13h7M3 3v10h3M3 8h3",
  timeline: "M2.5 3.5h6M5.5 8h6M8.5 12.5h5",
  sources: "M3.5 2.5h6l3 3v8h-9zM9.5 2.5v3h3M5.5 8.5h5M5.5 11h5",
  log: "M3 4l2.5 2L3 8M7.5 8.5H13M2 12.5h12",
  send: "M8 13V3.5M4 7l4-4 4 4",
  stop: "M4.5 4.5h7v7h-7z",
  clip: "M12.5 7.5 7.8 12.2a2.9 2.9 0 0 1-4.1-4.1L8.9 2.9a1.9 1.9 0 0 1 2.7 2.7L6.5 10.7a.9.9 0 0 1-1.3-1.3l4.6-4.6",
  close: "M4 4l8 8M12 4l-8 8",
  plus: "M8 3v10M3 8h10",
  search: "M7 11.5a4.5 4.5 0 1 0 0-9 4.5 4.5 0 0 0 0 9zM10.3 10.3l3.2 3.2",
  chevron: "M6 4l4 4-4 4",
  down: "M4 6l4 4 4-4",
  trash: "M3 4.5h10M6.5 4.5v-2h3v2M4.5 4.5l.5 9h6l.5-9M6.8 7v4M9.2 7v4",
  check: "M3.5 8.5l3 3 6-7",
  cross: "M4.5 4.5l7 7M11.5 4.5l-7 7",
  warning: "M8 2.5 14 13H2zM8 6.5v3M8 11.3v.1",
  question: "M5.8 6a2.2 2.2 0 1 1 3.3 1.9c-.7.4-1.1.8-1.1 1.6M8 12v.1",
  copy: "M5.5 5.5h8v8h-8zM10.5 5.5v-3h-8v8h3",
  external: "M9 3h4v4M13 3 7.5 8.5M11.5 9.5v3.5h-8.5v-8.5h3.5",
  fork: "M4.5 6v4.5M4.5 6a1.7 1.7 0 1 0 0-3.4 1.7 1.7 0 0 0 0 3.4zM4.5 13.9a1.7 1.7 0 1 0 0-3.4 1.7 1.7 0 0 0 0 3.4zM11.5 6a1.7 1.7 0 1 0 0-3.4 1.7 1.7 0 0 0 0 3.4zM11.5 6c0 2.5-3.5 2-5.8 3.6",
  undo: "M5.5 3 2.5 6l3 3M2.5 6h7a4 4 0 0 1 0 8h-3",
  changes: "M5 2.5v5M2.5 5h5M8.5 11.5h5M13 3 3 13",
  resume: "M5 3.5v9l7-4.5z",
  download: "M8 2.5v7.5M4.8 7 8 10.2 11.2 7M3 13h10",
  compare: "M8 2.5v11M2.5 4.5h3.5v7H2.5zM10 4.5h3.5v7H10z",
  follow: "M8 2.5v8M4.8 7.5 8 10.7l3.2-3.2M3 13.5h10",
  menu: "M2.5 4.5h11M2.5 8h11M2.5 11.5h11",
  sun: "M8 10.8a2.8 2.8 0 1 0 0-5.6 2.8 2.8 0 0 0 0 5.6zM8 1.5v1.6M8 12.9v1.6M1.5 8h1.6M12.9 8h1.6M3.4 3.4l1.1 1.1M11.5 11.5l1.1 1.1M12.6 3.4l-1.1 1.1M4.5 11.5l-1.1 1.1",
  moon: "M13 9.3A5.3 5.3 0 0 1 6.7 3a5.3 5.3 0 1 0 6.3 6.3z",
  screen: "M2.5 3.5h11v7.5h-11zM5.5 13.5h5",
  leave: "M9.5 3h-6v10h6M7 8h7M11.5 5.5 14 8l-2.5 2.5",
  keyboard: "M1.8 4.5h12.4v7H1.8zM4 6.8h.1M6.6 6.8h.1M9.3 6.8h.1M12 6.8h.1M5 9.3h6",
  globe:
    "M8 13.8A5.8 5.8 0 1 0 8 2.2a5.8 5.8 0 0 0 0 11.6zM2.2 8h11.6M8 2.2c2 1.7 2.8 3.6 2.8 5.8S10 12.1 8 13.8C6 12.1 5.2 10.2 5.2 8S6 3.9 8 2.2z",
  file: "M4 2.5h5l3 3v8H4zM9 2.5v3h3",
  pencil: "M3 13l.7-2.9 7-7 2.2 2.2-7 7zM9.3 4.5l2.2 2.2",
  terminal: "M2.5 3.5h11v9h-11zM4.8 6.5 6.5 8 4.8 9.5M8 9.7h3",
  delegate:
    "M8 5.5a2 2 0 1 0 0-4 2 2 0 0 0 0 4zM8 5.5V8M3.5 14.5a2 2 0 1 0 0-4 2 2 0 0 0 0 4zM12.5 14.5a2 2 0 1 0 0-4 2 2 0 0 0 0 4zM3.5 10.5V8h9v2.5",
  spend:
    "M8 13.8A5.8 5.8 0 1 0 8 2.2a5.8 5.8 0 0 0 0 11.6zM10 5.8C9.5 5 6.3 4.7 6.2 6.5 6.1 8.3 10 7.5 10 9.5s-3.5 1.7-4 .7M8 3.8v8.4",
  say: "M3 4.5h10M3 8h10M3 11.5h6",
  note: "M8 13.8A5.8 5.8 0 1 0 8 2.2a5.8 5.8 0 0 0 0 11.6zM8 7.3v3.7M8 5v.1",
};

/** An icon. It says nothing to a screen reader: the words beside it do. */
export function icon(name, size = 16) {
  return s(
    "svg",
    {
      class: "icon",
      viewBox: "0 0 16 16",
      width: size,
      height: size,
      "aria-hidden": "true",
      focusable: "false",
    },
    s("path", {
      d: SHAPES[name] ?? SHAPES.note,
      fill: "none",
      stroke: "currentColor",
      "stroke-width": "1.4",
      "stroke-linecap": "round",
      "stroke-linejoin": "round",
    }),
  );
}

export const EFFECT_ICONS = {
  read: "file",
  write: "pencil",
  execute: "terminal",
  network: "globe",
  spend: "spend",
  delegate: "delegate",
};

export const STATUS_WORDS = {
  pending: "not started",
  running: "running",
  waiting: "waiting",
  completed: "completed",
  error: "failed",
  cancelled: "cancelled",
  rejected: "rejected",
  refused: "refused",
  incomplete: "incomplete",
  interrupted: "interrupted",
};

// Each status has a shape of its own: nobody has to tell it by its colour.
const MARKS = {
  pending: () => [s("circle", { cx: 8, cy: 8, r: 5, class: "stroke dashed" })],
  running: () => [
    s("circle", { cx: 8, cy: 8, r: 5, class: "stroke faint" }),
    s("path", { d: "M8 3a5 5 0 0 1 5 5", class: "stroke spin" }),
  ],
  waiting: () => [
    s("circle", { cx: 8, cy: 8, r: 6, class: "fill" }),
    s("path", { d: "M6.3 6.5a1.75 1.75 0 1 1 2.6 1.5c-.6.35-.9.65-.9 1.3M8 11.15v.1", class: "stroke on" }),
  ],
  completed: () => [s("path", { d: "M3.5 8.5l3 3 6-7", class: "stroke" })],
  error: () => [s("path", { d: "M4.5 4.5l7 7M11.5 4.5l-7 7", class: "stroke" })],
  cancelled: () => [s("path", { d: "M4.5 4.5h7v7h-7z", class: "stroke" })],
  rejected: () => [
    s("circle", { cx: 8, cy: 8, r: 5, class: "stroke" }),
    s("path", { d: "M4.5 11.5l7-7", class: "stroke" }),
  ],
  refused: () => [
    s("circle", { cx: 8, cy: 8, r: 5, class: "stroke" }),
    s("path", { d: "M4.5 4.5l7 7", class: "stroke" }),
  ],
  interrupted: () => [s("path", { d: "M5.5 4v8M10.5 4v8", class: "stroke" })],
  incomplete: () => [s("path", { d: SHAPES.warning, class: "stroke" })],
};

/** The mark of a status, with its word for those who do not see it. */
export function statusMark(status, { labelled = true } = {}) {
  const hidden = labelled
    ? { role: "img", "aria-label": STATUS_WORDS[status] ?? status }
    : { "aria-hidden": "true" };
  const mark = MARKS[status] ?? MARKS.pending;
  return s(
    "svg",
    { class: `mark ${status}`, viewBox: "0 0 16 16", width: 16, height: 16, focusable: "false", ...hidden },
    mark(),
  );
}
