// The page of `bcnn serve`: photographs in, classes out; classes; mistakes. No library, nothing from other hosts.

const $ = id => document.getElementById(id);
const AT_ONCE = 4; // photographs per request, so that results appear while others are on their way
let run, classes, confusion;
const results = []; // {image, top} or {image, error}, for the CSV

function make(tag, content = "", attributes = {}) {
  const element = document.createElement(tag);
  element.append(...[].concat(content));
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}
const percent = share => share > 0 && share < 0.0005 ? "< 0.1 %" : `${(100 * share).toFixed(1)} %`;
const several = (count, one, many) => `${count} ${count === 1 ? one : many}`;

// Long names break after _, / and other marks, not within a word.
const breakable = text => text.split(/(?<=[_/.,-])/).flatMap((part, i) => i ? [make("wbr"), part] : [part]);

async function ask(path, options) {
  let answer;
  try { answer = await fetch(path, options); }
  catch { throw new Error("The server does not answer. Is bcnn serve still running?"); }
  const content = await answer.json().catch(() => ({}));
  if (!answer.ok && !content.results) throw new Error(content.detail || `The server says ${answer.status}.`);
  return content;
}

// --- recognize ------------------------------------------------------------------------------------------------------

const queue = [];
let working = false, leftOut = 0;

function take(files) {
  const images = [...files].filter(file => file.type.startsWith("image/") || !file.type);
  leftOut += files.length - images.length;
  queue.push(...images);
  if (!working) work();
}
const say = text => { $("status").textContent = text; };

async function work() {
  working = true;
  const before = results.length;
  try {
    while (queue.length) {
      const some = nextRequest();
      say(`Looking at ${some.length === 1 ? some[0].name || "an image" : `${some.length} photographs`}; ` +
          `${queue.length} more to do.`);
      await recognize(some);
    }
    say(summary(results.slice(before)));
  } catch (error) {
    queue.length = 0;
    say(error.message);
  }
  leftOut = 0;
  working = false;
}

function summary(done) {
  const failed = done.filter(result => result.error).length;
  return [
    `Done: ${several(done.length - failed, "photograph", "photographs")} recognized.`,
    failed ? `${several(failed, "file", "files")} could not be read.` : "",
    leftOut ? `${several(leftOut, "file was not an image and was", "files were not images and were")} left out.` : "",
  ].filter(Boolean).join(" ");
}

function nextRequest() {
  const some = [];
  let bytes = 0;
  while (queue.length && some.length < Math.min(AT_ONCE, run.limits.num_images)) {
    if (some.length && bytes + queue[0].size > 0.9 * run.limits.request_bytes) break;
    bytes += queue[0].size;
    some.push(queue.shift());
  }
  return some;
}

async function recognize(files) {
  const form = new FormData();
  const sent = files.filter(file => file.size <= run.limits.image_bytes);
  for (const file of files.filter(file => !sent.includes(file)))
    show(file, {image: file.name, error: "The file is larger than the server takes."});
  if (!sent.length) return;
  for (const file of sent) form.append("images", file, file.name || "pasted.png");
  for (let attempt = 1; ; attempt++) {
    const answer = await fetch("predict?explain=true&similar=true", {method: "POST", body: form})
      .catch(() => { throw new Error("The server does not answer. Is bcnn serve still running?"); });
    if (answer.status === 429 && attempt < 10) { await new Promise(r => setTimeout(r, 1000)); continue; }
    const content = await answer.json().catch(() => ({}));
    if (!content.results) throw new Error(content.detail || `The server says ${answer.status}.`);
    content.results.forEach((result, i) => show(sent[i], result));
    return;
  }
}

function show(file, result) {
  results.push(result);
  $("csv").disabled = $("clear").disabled = false;
  const card = make("article", make("h3", breakable(result.image)), {class: "result"});
  if (result.error) {
    card.append(make("p", result.error, {class: "error more"}));
  } else {
    card.append(picture(file, result), guesses(result.top));
    if (result.similar?.length) card.append(similar(result.similar));
  }
  $("results").prepend(card);
}

function picture(file, result) {
  const own = URL.createObjectURL(file);
  const image = make("img", "", {src: own, alt: `The photograph ${result.image}`, "data-own": own});
  const figure = make("figure", image);
  image.addEventListener("error", () => { if (result.overlay) image.src = result.overlay; }, {once: true});
  if (result.overlay) {
    const button = make("button", "Where did it look?", {type: "button", "aria-pressed": "false"});
    button.addEventListener("click", () => {
      const on = button.getAttribute("aria-pressed") === "false";
      button.setAttribute("aria-pressed", String(on));
      button.textContent = on ? "Show the photograph" : "Where did it look?";
      image.src = on ? result.overlay : own;
      image.alt = on ? `Regions that speak for ${result.explained} in orange, against it in blue` :
        `The photograph ${result.image}`;
    });
    figure.append(make("p", button));
  }
  return figure;
}

function guesses(top) {
  const box = make("div");
  for (const guess of top) {
    const bar = make("div");
    bar.style.width = `${100 * guess.probability}%`;
    box.append(make("p", [make("span", breakable(guess.class)), make("span", percent(guess.probability)),
      make("span", bar, {class: "bar", "aria-hidden": "true"})], {class: "guess"}));
  }
  return box;
}

function similar(found) {
  const photos = make("div", "", {class: "photos"});
  for (const one of found) {
    const figure = make("figure");
    if (one.photo !== undefined) figure.append(photograph(one.photo, `${one.class}, a training photograph`));
    figure.append(make("figcaption", breakable(`${one.class}, similarity ${one.cosine.toFixed(2)}`)));
    photos.append(figure);
  }
  return make("div", [make("p", "The most similar training photographs", {class: "quiet"}), photos], {class: "more"});
}

function photograph(number, alt) {
  const image = make("img", "", {src: `api/photographs/${number}`, alt, loading: "lazy"});
  image.addEventListener("error", () => image.replaceWith(make("p", "The photograph is gone.", {class: "quiet"})));
  return image;
}

function csvText() {
  const cell = value => {
    let text = String(value);
    if (/^[=+\-@]/.test(text)) text = `'${text}`; // spreadsheets would compute it
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const most = Math.max(0, ...results.map(result => result.top?.length ?? 0));
  const header = ["image", ...Array.from({length: most}, (_, i) => [`class${i + 1}`, `probability${i + 1}`]).flat(), "error"];
  const lines = results.map(result => {
    const top = (result.top ?? []).flatMap(guess => [cell(guess.class), guess.probability.toFixed(6)]);
    return [cell(result.image), ...top, ...Array(2 * most - top.length).fill(""), cell(result.error ?? "")];
  });
  return [header, ...lines].map(line => line.join(",")).join("\n") + "\n";
}

function download() {
  const link = make("a", "", {href: URL.createObjectURL(new Blob([csvText()], {type: "text/csv"})),
    download: "predictions.csv"});
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

function clear() {
  for (const image of document.querySelectorAll("[data-own]")) URL.revokeObjectURL(image.dataset.own);
  results.length = 0;
  $("results").replaceChildren();
  $("csv").disabled = $("clear").disabled = true;
  say("");
}

function startRecognizing() {
  const drop = $("drop");
  $("choose").addEventListener("click", () => $("files").click());
  $("files").addEventListener("change", () => { take($("files").files); $("files").value = ""; });
  document.addEventListener("dragover", event => { event.preventDefault(); drop.classList.add("over"); });
  document.addEventListener("dragleave", event => { if (!event.relatedTarget) drop.classList.remove("over"); });
  document.addEventListener("drop", event => {
    event.preventDefault();
    drop.classList.remove("over");
    location.hash = "#recognize";
    take(event.dataTransfer.files);
  });
  document.addEventListener("paste", event => { if (event.clipboardData.files.length) take(event.clipboardData.files); });
  $("csv").addEventListener("click", download);
  $("clear").addEventListener("click", clear);
}

// --- classes --------------------------------------------------------------------------------------------------------

async function showClasses() {
  classes ??= await ask("api/classes");
  $("classes-note").textContent = run.why_no_photographs;
  const wanted = $("find").value.toLowerCase();
  const order = {name: () => 0, worst: (a, b) => (a.accuracy ?? 2) - (b.accuracy ?? 2),
    best: (a, b) => (b.accuracy ?? -1) - (a.accuracy ?? -1)}[$("order").value];
  const found = classes.filter(own => own.name.toLowerCase().includes(wanted)).sort(order);
  $("class-list").replaceChildren(...found.map(own => {
    const photos = make("div", own.examples.map(i => make("figure", photograph(i, `Example of ${own.name}`))),
      {class: "photos"});
    const right = own.accuracy === null ? "no test images" :
      `${percent(own.accuracy)} of ${several(own.num_test, "test image is", "test images are")} recognized`;
    return make("li", [make("h4", breakable(own.name)), photos, make("p", `${right}; ${own.num_train} training images`,
      {class: "quiet"})]);
  }));
}

// --- mistakes -------------------------------------------------------------------------------------------------------

const chosen = {truth: 0, guess: 0};
let side = 14, counts = new Map(), totals = [];

async function showMistakes() {
  if (confusion) return draw();
  confusion = await ask("api/confusion");
  const k = confusion.classes.length;
  if (!confusion.counts.length) {
    $("matrix-note").textContent = "This run has no predictions of test images.";
    $("matrix").hidden = $("often-title").hidden = true;
    return;
  }
  totals = Array(k).fill(0);
  for (const [truth, guess, count] of confusion.counts) {
    counts.set(truth * k + guess, count);
    totals[truth] += count;
  }
  side = Math.max(4, Math.min(28, Math.floor(620 / k)));
  const wrong = confusion.counts.filter(([truth, guess]) => truth !== guess).sort((a, b) => b[2] - a[2]).slice(0, 12);
  $("often").replaceChildren(...wrong.map(([truth, guess, count]) => {
    const button = make("button", breakable(words(truth, guess, count)), {type: "button"});
    button.addEventListener("click", () => open(truth, guess));
    return make("li", button);
  }));
  draw();
}
const words = (truth, guess, count) => truth === guess ? `${confusion.classes[truth]}: ${count} recognized` :
  `${confusion.classes[truth]} taken for ${confusion.classes[guess]}: ${count}`;

function draw() {
  const canvas = $("matrix"), k = confusion.classes.length, ratio = window.devicePixelRatio || 1;
  const style = getComputedStyle(document.documentElement);
  canvas.width = canvas.height = Math.round(k * side * ratio);
  canvas.style.width = canvas.style.height = `${k * side}px`;
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  pen.fillStyle = style.getPropertyValue("--rest");
  pen.fillRect(0, 0, k * side, k * side);
  for (const [truth, guess, count] of confusion.counts) {
    pen.globalAlpha = 0.2 + 0.8 * Math.sqrt(count / totals[truth]); // the root: a single mistake is seen, too
    pen.fillStyle = truth === guess ? "#2f7fd0" : "#d9722a";
    pen.fillRect(guess * side, truth * side, side - (side > 6), side - (side > 6));
  }
  pen.globalAlpha = 1;
  pen.strokeStyle = style.getPropertyValue("--text");
  pen.lineWidth = 2;
  pen.strokeRect(chosen.guess * side, chosen.truth * side, side, side);
}

function point(truth, guess) {
  const last = confusion.classes.length - 1;
  chosen.truth = Math.max(0, Math.min(last, truth));
  chosen.guess = Math.max(0, Math.min(last, guess));
  const count = counts.get(chosen.truth * (last + 1) + chosen.guess) ?? 0;
  $("cell").textContent = words(chosen.truth, chosen.guess, count);
  draw();
}

async function open(truth, guess) {
  point(truth, guess);
  const found = await ask(`api/confusion/${truth}/${guess}`).catch(error => { $("cell").textContent = error.message; });
  if (!found) return;
  $("shown-title").replaceChildren(...breakable(words(truth, guess, found.length)));
  $("shown").replaceChildren(...found.map(own => mistake(own, truth, guess)));
  $("shown-title").focus();
}

function mistake(own, truth, guess) {
  const card = make("li", make("h4", breakable(own.name)));
  if (own.photo === null) {
    card.append(make("p", run.why_no_photographs || "The photograph is gone.", {class: "quiet"}));
    return card;
  }
  const image = photograph(own.photo, `${own.name}, a ${confusion.classes[truth]}`);
  card.append(image, make("p", `predicted with ${percent(own.probability)}`, {class: "quiet"}));
  if (run.why_no_regions) return card;
  const button = make("button", breakable(`Why ${confusion.classes[guess]}?`), {type: "button"});
  button.addEventListener("click", async () => {
    button.disabled = true;
    try {
      const {results: [result]} = await ask(`api/photographs/${own.photo}/regions?label=${guess}`);
      image.src = result.overlay;
      image.alt = `Regions that speak for ${result.explained} in orange, against it in blue`;
      button.replaceWith(make("p", `Orange speaks for ${result.explained}, blue against it.`, {class: "quiet"}));
    } catch (error) { button.replaceWith(make("p", error.message, {class: "error"})); }
  });
  card.append(button);
  return card;
}

function startMistakes() {
  const canvas = $("matrix");
  const at = event => {
    const box = canvas.getBoundingClientRect();
    return [Math.floor((event.clientY - box.top) / side), Math.floor((event.clientX - box.left) / side)];
  };
  canvas.addEventListener("mousemove", event => confusion && point(...at(event)));
  canvas.addEventListener("click", event => confusion && open(...at(event)));
  canvas.addEventListener("keydown", event => {
    if (!confusion) return; // still on its way
    const step = {ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1]}[event.key];
    if (step) { event.preventDefault(); point(chosen.truth + step[0], chosen.guess + step[1]); }
    if (event.key === "Enter" || event.key === " ") { event.preventDefault(); open(chosen.truth, chosen.guess); }
  });
}

// --- the page -------------------------------------------------------------------------------------------------------

async function turn() {
  if (location.hash === "#main") return; // the link that skips to the content
  const page = ["recognize", "classes", "mistakes"].find(name => location.hash === `#${name}`) ?? "recognize";
  for (const name of ["recognize", "classes", "mistakes"]) $(name).hidden = name !== page;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.getAttribute("href") === `#${page}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  try {
    if (page === "classes") await showClasses();
    if (page === "mistakes") await showMistakes();
  } catch (error) { $("about").textContent = error.message; }
}

function startScheme() {
  const root = document.documentElement;
  $("scheme").addEventListener("click", () => {
    const now = root.dataset.scheme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
    root.dataset.scheme = now === "dark" ? "light" : "dark";
    if (confusion && !$("mistakes").hidden) draw();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => confusion?.counts.length && draw());
}

async function start() {
  startScheme();
  try { run = await ask("api/run"); }
  catch (error) { $("about").textContent = error.message; return; }
  document.title = $("title").textContent = run.name;
  const known = run.accuracy === null ? "" : `; accuracy ${percent(run.accuracy)}` + (run.interval95 ?
    ` (${percent(run.interval95[0])} to ${percent(run.interval95[1])}) on ${run.num_test} test images` : "");
  $("about").textContent = `${run.num_classes} classes of ${run.dataset || "a dataset"}; ${run.network} at ` +
    `${run.image_size} pixels${known}.`;
  $("bounds").textContent = `At most ${Math.round(run.limits.image_bytes / 1e6)} MB and ` +
    `${Math.round(run.limits.pixels / 1e6)} megapixels each.`;
  const bars = run.calibrated ? "The probabilities are calibrated: of all predictions made with 70 %, about 70 % are right." :
    "The probabilities are not calibrated: they rank the classes, but may be too sure.";
  $("notes").textContent = [bars, run.why_no_regions, run.why_no_similar, run.why_no_photographs].filter(Boolean).join(" ");
  startRecognizing();
  startMistakes();
  $("find").addEventListener("input", showClasses);
  $("order").addEventListener("change", showClasses);
  window.addEventListener("hashchange", turn);
  await turn();
  document.body.dataset.ready = "yes";
}
start();
