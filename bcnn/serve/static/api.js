// The API page: what openapi.json says, in words.

const make = (tag, content = "") => { const e = document.createElement(tag); e.append(...[].concat(content)); return e; };

function kind(schema, all) {
  if (!schema) return "";
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.anyOf) return schema.anyOf.map(one => kind(one, all)).filter(text => text !== "null").join(" or ");
  if (schema.type === "array") return `list of ${schema.prefixItems ? "tuples" : kind(schema.items, all)}`;
  return schema.format ?? schema.type ?? "";
}

function table(rows, names) {
  const own = make("table", make("thead", make("tr", names.map(name => make("th", name)))));
  own.append(make("tbody", rows.map(row => make("tr", row.map(cell => make("td", cell))))));
  const box = make("div", own);
  box.className = "scroll";
  return box;
}

function section(method, path, about, all) {
  const box = make("section", [make("h2", `${method.toUpperCase()} ${path}`), make("p", about.description ?? "")]);
  const asked = (about.parameters ?? []).map(own => [own.name, own.in, kind(own.schema, all), String(own.schema.default ?? ""), own.description ?? ""]);
  if (asked.length) box.append(make("h3", "Parameters"), table(asked, ["parameter", "in", "type", "default", "meaning"]));
  const answers = Object.entries(about.responses).map(([code, own]) => {
    const content = Object.entries(own.content ?? {})[0];
    return [code, own.description, content ? kind(content[1].schema, all) || content[0] : ""];
  });
  box.append(make("h3", "Answers"), table(answers, ["code", "meaning", "answer"]));
  return box;
}

const answer = await fetch("openapi.json");
const api = await answer.json();
const place = document.getElementById("paths");
document.getElementById("curl").textContent =
  `curl -F images=@first.jpg -F images=@second.jpg "${location.origin}/predict?top=3"`;
for (const [path, methods] of Object.entries(api.paths))
  for (const [method, about] of Object.entries(methods)) place.append(section(method, path, about, api));
place.append(make("h2", "What the answers hold"));
for (const [name, schema] of Object.entries(api.components.schemas)) {
  const rows = Object.entries(schema.properties ?? {}).map(([field, own]) => [field, kind(own, api), own.description ?? ""]);
  place.append(make("h3", name), make("p", schema.description ?? ""), table(rows, ["field", "type", "meaning"]));
}
document.body.dataset.ready = "yes";
