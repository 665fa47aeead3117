/* Emoji of agents, where they can be seen: without a font for them a browser draws an empty box. */

const SIZE = 20;
const known = new Map();
let pen = null;

function drawnAs(text) {
  pen ??= new OffscreenCanvas(SIZE, SIZE).getContext("2d", { willReadFrequently: true });
  pen.clearRect(0, 0, SIZE, SIZE);
  pen.font = "16px system-ui, sans-serif";
  pen.textBaseline = "top";
  pen.fillText(text, 0, 2);
  return pen.getImageData(0, 0, SIZE, SIZE).data.join();
}

/** The emoji itself, or nothing if it would be the box that stands for a character which no font has. */
export function emoji(text) {
  if (!text) return "";
  if (!known.has(text)) {
    const [first] = text;
    known.set(text, drawnAs(first) !== drawnAs("\u{10fffd}"));
  }
  return known.get(text) ? text : "";
}
