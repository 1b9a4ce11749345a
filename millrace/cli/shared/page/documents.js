// One function for each kind of document. Each returns the parts of its page, from top to bottom.

const heading = text => make("h2", {}, text);

// Plan.

const LARGE = 0.1; // share of the total from which a branch of the cost tree is open

/** Cost as a tree: a branch is {name, usd, assumed, children} or a line of the bill, {name, usd, assumed, why}. */
function costTree({ streams, clusters, jobs, shared, prices, prices_of, left_out, total }) {
  const lines = cost => cost.items.filter(each => each.usd).map(({ name, usd, assumed, why }) => ({ name, usd, assumed, why }));
  const branch = (name, children) => ({
    name, children: children.sort((one, other) => other.usd - one.usd),
    usd: children.reduce((sum, each) => sum + each.usd, 0), assumed: children.some(each => each.assumed),
  });
  // A stream without a bill is somebody else's, or paid with its cluster.
  const members = part => Object.values(part).map(each => ({
    ...branch(each.name, lines(each.cost)), instead: each.ours === false && "not ours",
    ...(each.kind === "kafka" && each.ours && !each.cost.usd_month && { instead: "with its cluster" }),
  }));
  const section = (part, noun) => Object.keys(part).length && branch(count(Object.keys(part).length, noun), members(part));
  const root = branch("Total",
    [section(jobs, "job"), section(streams, "stream"), section(clusters, "Kafka cluster"), branch("shared by all", lines(shared))]
      .filter(each => each && (each.usd || each.children.length)));
  const draw = (node, level) => {
    const row = make("span", { class: "row" },
      make("span", { class: "name" }, node.name), track(node.usd / (root.usd || 1)),
      make("span", { class: "figure" }, node.usd || !node.instead ? dollars(node.usd, node.assumed) : node.instead),
      make("span", { class: "figure" }, node.usd || !node.instead ? percent(node.usd / (root.usd || 1)) : ""));
    if (!node.children) return [row, make("p", { class: "why" }, node.why)];
    if (!node.children.length) return row;
    const parts = foldRest(node.children.map(each => make("li", {}, draw(each, level + 1))), 12,
      left => count(left, "smaller one"), list => make("ul", {}, list));
    return fold(row, parts, { open: level === 0 || node.usd >= LARGE * root.usd });
  };
  const shares = root.children.map(each => `${each.name} ${percent(each.usd / (root.usd || 1))}`).join(", ");
  return [
    picture("costs", "What costs what, in a month?", `${dollars(root.usd, root.assumed)} a month: ${shares}.`,
      make("div", { class: "tree" }, draw(root, 0))),
    note(`Prices of ${prices}, ${prices_of}. Not in it: ${left_out.join("; ")}.`),
  ];
}

/** All ways to run a job, under a summary with the plan's way and the cheapest other one. */
function ways({ name, choices, cores, advice }) {
  const [first, ...others] = choices, next = others.find(each => !each.refused);
  const more = next && next.usd - first.usd;
  const against = next ? `; next ${next.way}, ${dollars(Math.abs(more))} ${more >= 0 ? "more" : "less"}` : "";
  const rows = choices.map(each => [
    each.way, fixed(each.executors + 1, 0), fixed(each.usd, 2),
    `${each.memory_needed_gib.toFixed(1)} of ${each.memory_gib}`, duration(each.worst_age_seconds),
    each.refused || each.unproven || (each === first ? "the plan" : ""),
  ]);
  return fold(`${name}: ${first.way}, ${dollars(first.usd)} a month${against}`, [
    note(`${count(cores.value, "core")}: ${cores.why}`),
    table(["way", "workers", "$ a month", "GiB needed", "worst age", "remarks"], rows, `Ways to run ${name}`),
    advice.map(note),
  ], { id: `job-${name}` });
}

function plan(it) {
  const byCost = Object.values(it.jobs).sort((one, other) => other.cost.usd_month - one.cost.usd_month);
  const notes = [...it.advice, ...it.warnings];
  const shown = value => typeof value === "object" && value !== null ? "as its job has it" : value;
  const moves = it.moves.map((each, place) => [
    `${place + 1}. ${[each.key, ...each.with_it.map(([key]) => key)].join(", ")}`,
    `${shown(each.old) ?? "not set"}`,
    `${shown(each.new) ?? "remove it"}`,
    `$${fixed(each.usd, 2)}`,
    `$${fixed(each.saved, 2)}`,
    each.gives_up || "",
  ]);
  return [
    verdict(it.verdict),
    moves.length > 0 && [
      heading("What would cost less?"),
      table(["key", "now", "change to", "a month then", "saves", "gives up"], moves, "Changes of the file that cost less",
        { words: true }),
    ],
    flow(it.flow),
    costTree(it),
    bars("Do queries keep up with the peak?", "query", it.room.capacity),
    bars("Are records in time at the peak?", "query", it.room.age),
    bars("Do shards take the peak?", "stream", it.room.shards),
    heading("What would run each job for less, or faster?"),
    foldRest(byCost.map(ways), 12, left => `${count(left, "job")} that cost less`),
    notes.length > 0 && heading("Notes"),
    notes.map(note),
  ];
}

// Simulation.

function simulate(it) {
  return [verdict(it.verdict), Object.entries(it.jobs).map(([name, job]) => {
    const rows = Object.entries(job.queries).map(([query, { age, sla, kept, waiting }]) => [
      query, ...["p50", "p95", "p99", "max"].map(each => (age ? duration(age[each]) : "-")),
      duration(sla), badge(kept === null ? "unknown" : kept ? "kept" : "missed"), figure(waiting),
    ]);
    return [
      heading(`Job ${name}`),
      note(`${duration(job.seconds)}, ${fixed(job.mean_executors, 2)} executors on average, ${dollars(job.usd)}. Ages are `
        + "those of records at their commit, weighted by records."),
      table(["query", "p50", "p95", "p99", "max", "SLA", "kept", "waiting at the end"], rows, `Record age of ${name}`),
      job.curves.map(chart),
    ];
  })];
}

// Advice.

const between = ({ low, high }, unit = "") =>
  low === null || high === null || low === high ? "-" : `${figure(low)} to ${figure(high)} ${unit}`.trim();

/** A finding behind its summary: words, evidence, changes, and links to its batches. */
function finding(each, place, runs) {
  const name = `${place + 1}. ${each.kind}`;
  const gain = `${figure(each.effect.likely)} ${each.effect.unit} of ${each.effect.what}`;
  const usd = each.dollars_a_month === null ? "" : `, ${dollars(each.dollars_a_month)} a month`;
  const owner = each.run === null ? runs[0] : runs.find(run => run.id === each.run);
  const shown = owner ? each.batches.filter(batch => owner.shown.has(batch)).slice(0, 24) : [];
  const left = each.batches.length - shown.length;
  const links = shown.map(batch => [" ", make("a", { href: `#${owner.anchor(batch)}` }, `${batch}`)]);
  const evidence = each.evidence.map(one => [one.name, `${figure(one.value)} ${one.unit}`.trim(), between(one)]);
  const changes = each.changes.map(one => [one.where, one.key, `${one.old ?? "not set"}`, `${one.new ?? "take it away"}`]);
  return fold([badge(each.severity), ` ${name} of ${each.query || "all queries"}: ${gain}${usd}`], [
    note(each.words),
    table(["evidence", "value", "95 % interval"], evidence, `Evidence of ${name}; its gain is ${gain} (${between(each.effect)})`),
    changes.length > 0 && table(["where", "key", "now", "change to"], changes, `Changes for ${name}, best first`, { words: true }),
    links.length > 0 && make("p", {}, "Batches", links, left ? ` and ${left} more` : ""),
  ], { open: place === 0, id: `finding-${place + 1}` });
}

/** A run of a query behind its summary: curves, and a table of its batches, to which findings link. */
function run({ title, count: all, curves, batches, anchor }) {
  const rows = batches.rows.map(row => row.map(String)), ids = batches.rows.map(([id]) => anchor(id));
  return fold(make("span", { class: "title" }, `Query ${title}: ${count(all, "batch")}`), [
    curves.map(chart),
    fold(`Batches of ${title}`, table(batches.head, rows, `Batches of ${title}, ${rows.length} of ${fixed(all, 0)}`, { ids })),
  ]);
}

function advise(it) {
  const runs = it.runs.map((each, place) => ({
    ...each, shown: new Set(each.batches.rows.map(([id]) => id)), anchor: batch => `batch-${place + 1}-${batch}`,
  }));
  return [
    verdict(it.verdict),
    note(`From ${it.application.started.slice(0, 16).replace("T", " ")} UTC on.`),
    heading("Findings"),
    it.findings.length ? it.findings.map((each, place) => finding(each, place, runs))
      : runs.some(each => each.count) && note("No change is recommended."),
    it.notes.map(each => note(`Note: ${each}`)),
    it.what_if.rows.length > 0 && [heading("What if"), table(it.what_if.head, it.what_if.rows, "Predicted values with 95 % intervals")],
    runs.length > 0 && heading("Queries"),
    runs.filter(each => each.count).map(run),
  ];
}

// Other ways to do the work.

function compare({ ways }) {
  const rows = ways.map(each => [
    each.name, each.usd === null ? "unknown" : dollars(each.usd), each.price, each.lacks, each.beyond.join("; ")]);
  return [table(["way", "a month", "price", "does not do", "of which the file uses"], rows,
    "This plan, then all other ways that do all that the file asks for, the cheapest first, then the others", { words: true })];
}

// Everything else: texts, tables and curves, in this order.

function report({ texts, tables, curves = [] }) {
  return [texts.map(note), tables.map(each => table(each.head, each.rows, each.caption, { words: each.words })), curves.map(chart)];
}

/** Opens whatever the address leads to: a link into a fold works, in each browser. */
function reveal() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!target) return;
  for (let each = target; each; each = each.parentElement) if (each.tagName === "DETAILS") each.open = true;
  target.scrollIntoView();
}

const data = JSON.parse(document.getElementById("data").textContent);
document.querySelector("main").replaceChildren(
  make("h1", {}, data.title), ...make("div", {}, { plan, simulate, advise, compare, report }[data.kind](data)).childNodes);
addEventListener("hashchange", reveal);
reveal();
