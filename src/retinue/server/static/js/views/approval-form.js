/* The form of a question that wants answers: a field for each property of its JSON schema. */

import { h, newId } from "../dom.js";
import { clean, oneLine, parsed } from "../words.js";

const INPUTS = { email: "email", uri: "url", date: "date", "date-time": "datetime-local" };

/** The fields of a question, filled in as far as it says. `read()` gives the answers, or what is wrong. */
export function formFields(asked) {
  const known = parsed(asked.arguments) ?? {};
  const required = asked.form.required ?? [];
  const fields = Object.entries(asked.form.properties ?? {}).map(([name, schema]) =>
    field(name, schema ?? {}, known[name] ?? schema?.default, required.includes(name)),
  );
  return {
    elements: fields.map((one) => one.element),
    focus: () => fields[0]?.control.focus(),
    read: () => answers(fields),
  };
}

function answers(fields) {
  const given = {};
  for (const one of fields) {
    const value = one.value();
    const missing = value === undefined && one.needed;
    const valid = !missing && (one.control.checkValidity?.() ?? true);
    one.control.toggleAttribute("aria-invalid", !valid);
    if (!valid) {
      one.control.focus();
      const why = missing ? "is needed" : `is not right: ${one.control.validationMessage}`;
      return { problem: `${one.label} ${why}` };
    }
    if (value !== undefined) given[one.name] = value;
  }
  return { given };
}

function field(name, schema, known, needed) {
  const id = newId("field");
  const label = oneLine(schema.title || name, 80);
  const about = schema.description ? newId("about") : undefined;
  const made = control(schema, known, { id, "aria-describedby": about });
  const title = h("label", { for: id }, label, !needed && h("span", { class: "muted" }, " (optional)"));
  const says = about && h("div", { class: "small muted", id: about }, clean(schema.description));
  const box = schema.type === "boolean";
  const element = box
    ? h("div", { class: "form-field" }, h("div", { class: "row" }, made.control, title), says)
    : h("div", { class: "form-field" }, title, says, made.control);
  return { name, label, element, needed, ...made };
}

/** What is filled in, and how to read it. */
function control(schema, known, props) {
  const choices = choicesOf(schema);
  if (schema.type === "boolean") {
    const box = h("input", { ...props, type: "checkbox", checked: known === true });
    return { control: box, value: () => box.checked };
  }
  if (schema.type === "array") return several(choicesOf(schema.items ?? {}), known, props);
  if (choices.length) return oneOf(choices, known, props);
  const number = schema.type === "integer" || schema.type === "number";
  const input = h("input", {
    ...props,
    class: "field",
    type: number ? "number" : (INPUTS[schema.format] ?? "text"),
    step: schema.type === "number" ? "any" : undefined,
    min: schema.minimum,
    max: schema.maximum,
    minlength: schema.minLength,
    maxlength: schema.maxLength,
    value: known === undefined || known === null ? "" : String(known),
  });
  const read = () => {
    if (input.value === "") return undefined;
    if (schema.format === "date-time") return new Date(input.value).toISOString();
    return number ? Number(input.value) : input.value;
  };
  return { control: input, value: read };
}

function oneOf(choices, known, props) {
  const select = h(
    "select",
    { ...props, class: "field" },
    h("option", { value: "" }, "Choose…"),
    choices.map(({ value, title }, index) =>
      h("option", { value: String(index), selected: value === known }, title),
    ),
  );
  return { control: select, value: () => choices[Number(select.value || "-1")]?.value };
}

function several(choices, known, props) {
  const chosen = Array.isArray(known) ? known : [];
  const boxes = choices.map(({ value, title }) => {
    const box = h("input", { type: "checkbox", checked: chosen.includes(value) });
    return { value, box, element: h("label", { class: "row" }, box, title) };
  });
  const group = h("div", { ...props, role: "group", tabindex: "-1" }, boxes.map((one) => one.element));
  return { control: group, value: () => boxes.filter((one) => one.box.checked).map((one) => one.value) };
}

/** The values that a field may have, each with what people read. */
function choicesOf(schema) {
  const told = schema.oneOf ?? schema.anyOf;
  if (Array.isArray(told))
    return told.map((one) => ({ value: one.const, title: oneLine(String(one.title ?? one.const), 80) }));
  if (!Array.isArray(schema.enum)) return [];
  const names = schema.enumNames ?? [];
  return schema.enum.map((value, index) => ({ value, title: oneLine(String(names[index] ?? value), 80) }));
}
