"use strict";

// Each chart: one or two lines, by their names in /page.json's series, and what their values are.
const charts = [
	{ title: "Payload", unit: bytesPerSecond, a: ["sent", "sent_bytes"], b: ["received", "received_bytes"] },
	{ title: "Messages", unit: perSecond, a: ["sent", "sent_messages"], b: ["received", "received_messages"] },
	{ title: "Messages acked in", unit: seconds, a: ["p50", "message_p50"], b: ["p99", "message_p99"], gaps: true },
	{ title: "RDMA", unit: bytesPerSecond, a: ["out", "rdma_out_bytes"], b: ["in", "rdma_in_bytes"] },
	{ title: "Operations settled in", unit: seconds, a: ["p50", "operation_p50"], b: ["p99", "operation_p99"], gaps: true },
	{ title: "Waiting", unit: count, a: ["messages not acked", "unacked_messages"], b: ["operations", "operations"] },
	{ title: "Within this host", unit: perSecond, a: ["messages", "local_messages"] },
	{ title: "Congested ports", unit: count, a: ["ports", "congested_ports"] },
	{ title: "Refused messages", unit: perSecond, a: ["refused", "refused_messages"] },
	{ title: "Kept for readers", unit: bytes, a: ["bytes", "held_bytes"] },
	{ title: "Broken connections", unit: perSecond, a: ["broken", "broken_connections"] },
];
const gauges = [
	["clients", c => count(c.rdsd_clients)], ["sockets", c => count(c.rdsd_sockets)], ["regions", c => count(c.rdsd_regions)],
	["registered", c => bytes(c.rdsd_registered_bytes)], ["shared with clients", c => bytes(c.rdsd_shared_bytes)],
	["messages sent", c => count(c.send_queued)], ["messages received", c => count(c.recv_queued)],
	["operations: success", c => count(c.rdsd_op_success)], ["dropped", c => count(c.rdsd_op_dropped)], ["unknown", c => count(c.rdsd_op_unknown)],
	["refused", c => count(c.rdsd_op_refused)], ["messages lost", c => count(c.rdsd_messages_lost)],
	["sent again", c => count(c.rdsd_retransmitted)], ["over a quota", c => count(c.rdsd_quota_refused)],
	["processes that broke a rule", c => count(c.rdsd_client_violations)], ["protocol errors", c => count(c.rdsd_protocol_errors)],
];
// Who has to act, by waits_for.
const actors = {
	receiver: "the receiver there: it does not read", connection: "the network or the peer: there is no connection", credits: "the peer's daemon: it gives no credits",
	ack: "the peer's daemon: it has not acked", turn: "nobody: others on this connection come first", copy: "nobody: the engine is copying", nobody: "nobody",
	reader: "the process here: it does not read", "quota.destinations": "the administrator here: quota.destinations is used up",
	room: "the administrator here: the daemon has as many peers as it can have", administrator: "the administrator here: it is drained",
};
const powersOf2 = Array.from({ length: 50 }, (_, i) => 2 ** i); // between two lines of an axis of bytes
const keep = 300; // samples: ten minutes
const data = []; // of each series, its values
const times = []; // of the samples, in seconds
let last = 0; // moment of the last sample, in ms

function scaled(n, units, base) {
	let i = 0;
	while (n >= base * 0.9995 && i < units.length - 1) { n /= base; i++; }
	const text = n >= 99.95 || n === Math.round(n) ? n.toFixed(0) : n >= 9.995 ? n.toFixed(1) : n.toFixed(2);
	return text.replace(/(\.\d*?)0+$/, "$1").replace(/\.$/, "") + units[i];
}
function count(n) { return scaled(n, ["", "k", "M", "G", "T"], 1000); }
function perSecond(n) { return count(n) + "/s"; }
function bytes(n) { return scaled(n, [" B", " KiB", " MiB", " GiB", " TiB"], 1024); }
function bytesPerSecond(n) { return bytes(n) + "/s"; }
function seconds(s) {
	if (s === null || s === undefined) return "\u2013";
	if (s === 0) return "0";
	if (s < 1e-3) return scaled(s * 1e6, [" \u00b5s"], 1e9);
	return s < 1 ? scaled(s * 1e3, [" ms"], 1e9) : scaled(s, [" s"], 1e9);
}
function span(s) {
	if (s < 120) return Math.floor(s) + " s";
	if (s < 7200) return Math.floor(s / 60) + " min";
	return s < 172800 ? Math.floor(s / 3600) + " h" : Math.floor(s / 86400) + " days";
}
function el(name, attrs, ...children) {
	const svg = ["svg", "polyline", "polygon"].includes(name);
	const e = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
	for (const k in attrs) e.setAttribute(k, attrs[k]);
	e.append(...children);
	return e;
}
function colour(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }

// plot makes the chart of c in its figure. The cursor is that of all charts.
function plot(c) {
	c.lines = [["a", c.a], ["b", c.b]].filter(l => l[1]);
	const place = el("div", { class: "plot" });
	const head = el("figcaption", {}, el("strong", {}, c.title), c.when = el("time"));
	c.values = c.lines.map(([cls, [name]]) => {
		const b = el("b");
		head.append(el("span", { class: cls }, name, b));
		return b;
	});
	c.figure = el("figure", { "aria-label": c.title }, head, place);
	document.getElementById("charts").append(c.figure);
	const axis = { stroke: () => colour("--dim"), grid: { stroke: () => colour("--grid"), width: 1 }, ticks: { stroke: () => colour("--grid"), width: 1, size: 4 }, font: "11px system-ui, sans-serif" };
	c.plot = new uPlot({
		width: 400, height: 150, padding: [8, 8, 0, 0], legend: { show: false },
		cursor: { sync: { key: "rdsd" }, drag: { x: false, y: false }, points: { size: 6 } },
		scales: { x: { time: true, range: () => { const to = times.at(-1) ?? 0; return [to - 600, to]; } }, y: { range: (u, lo, hi) => [0, hi > 0 ? hi * 1.1 : 1] } },
		axes: [{ ...axis, size: 28, space: 70, values: (u, at) => at.map(t => new Date(t * 1000).toTimeString().slice(0, 5)) },
			{ ...axis, size: 74, space: 32, values: (u, at) => at.map(v => c.unit(v)), ...(c.unit === bytes || c.unit === bytesPerSecond ? { incrs: powersOf2 } : {}) }],
		series: [{}, ...c.lines.map(([cls]) => ({ stroke: () => colour("--" + cls), width: 1.6, points: { show: false }, spanGaps: false }))],
		hooks: { setCursor: [() => legend(c)] },
	}, [[], ...c.lines.map(() => [])], place);
	new ResizeObserver(() => c.plot.setSize({ width: place.clientWidth || 400, height: 150 })).observe(place);
}
// legend shows the values under the cursor, or else the latest.
function legend(c) {
	if (!c.plot) return;
	const i = c.plot.cursor.idx ?? times.length - 1;
	const at = c.plot.cursor.idx !== null && c.plot.cursor.idx !== undefined ? times[i] : undefined;
	c.when.textContent = at ? new Date(at * 1000).toTimeString().slice(0, 8) : "";
	c.lines.forEach((l, k) => { c.values[k].textContent = times.length ? c.unit(c.plot.data[k + 1]?.[i] ?? (c.gaps ? null : 0)) : ""; });
}
function remember(p) {
	if (Date.parse(p.time) < last) { // the clock was set back: the next look fetches all
		times.length = last = 0;
		data.forEach(d => { d.length = 0; });
		return;
	}
	for (const [t, ...values] of p.history) {
		last = t;
		times.push(t / 1000);
		values.forEach((v, i) => (data[i] ??= []).push(v));
	}
	while (times.length > keep) { times.shift(); data.forEach(d => d.shift()); }
}
function drawCharts(p) {
	const quiet = [];
	for (const c of charts) {
		if (!c.figure) plot(c);
		const lines = c.lines.map(([, [, name]]) => {
			const d = data[p.series.indexOf(name)] ?? [];
			return c.gaps ? d.map(v => v || null) : d; // no message, no time
		});
		const empty = !lines.some(d => d.some(v => v > 0));
		if (empty) quiet.push(c.title.toLowerCase().replace("rdma", "RDMA"));
		c.figure.hidden = empty;
		if (empty) continue;
		c.plot.setData([times, ...lines]);
		legend(c);
	}
	const e = document.getElementById("quiet");
	e.hidden = quiet.length === 0;
	e.textContent = "Nothing in ten minutes: " + quiet.join(", ") + ".";
}
function spark(values) {
	const w = 130, h = 22, top = Math.max(...values, 1), n = 60;
	const pts = values.map((v, k) => `${(w * (n - values.length + k) / (n - 1)).toFixed(1)},${(h - 1 - (h - 3) * v / top).toFixed(1)}`);
	const svg = el("svg", { viewBox: `0 0 ${w} ${h}`, class: "spark", role: "img", "aria-label": "traffic, at most " + bytesPerSecond(top) });
	if (pts.length > 1) svg.append(el("polygon", { points: `${pts[0].split(",")[0]},${h} ${pts.join(" ")} ${w},${h}` }), el("polyline", { points: pts.join(" ") }));
	return svg;
}
function row(...cells) {
	return el("tr", {}, ...cells.map(([content, cls]) => el("td", cls ? { class: cls } : {}, content instanceof Node ? content : String(content))));
}
function time(ns) { return ns ? seconds(ns / 1e9) : "\u2013"; }
function peerRow(p, now) {
	const waiting = p.queued_messages + p.unacked_messages;
	return row([p.remote], [p.lane, "n"], [p.state, p.state], [p.since ? span((now - Date.parse(p.since)) / 1000) : "\u2013", "n"], [p.transport], [spark(p.trail)],
		[bytesPerSecond(p.sent_bytes_per_second), "n"], [bytesPerSecond(p.received_bytes_per_second), "n"], [time(p.rtt_ns), "n"], [time(p.recent_p99_ns), "n"],
		[count(waiting), "n"], [time(p.oldest_unacked_ns), p.oldest_unacked_ns > 5e9 ? "n warn" : "n"], [count(p.resets), "n"], [count(p.lost_messages), "n"], [failure(p.last_error, p.last_error_at, now), "long"]);
}
// fill shows the rows in the panel called id, or hides it if there are none.
function fill(id, rows, always) {
	const e = document.getElementById(id);
	e.hidden = rows.length === 0 && !always;
	e.querySelector("tbody").replaceChildren(...rows);
}
// failure is an error with its age.
function failure(text, at, now) { return text && at ? `${text} (${span(Math.max(0, now - Date.parse(at)) / 1000)} ago)` : text; }
function healthItem(h, now) {
	const error = h.error ? ": " + failure(h.error, h.error_at, now) : "";
	const since = h.since ? `, for ${span((now - Date.parse(h.since)) / 1000)}` : "";
	return el("li", { class: h.level }, h.text + error + since, el("span", {}, h.fix ? `${h.who}: ${h.fix}` : h.who), el("code", {}, h.do));
}
// distinct returns the latest event of each kind, with the number of events of that kind.
function distinct(events) {
	const kinds = new Map();
	for (const e of events) {
		const key = JSON.stringify([e.event, e.peer, e.error]), same = kinds.get(key);
		if (same) same.count++;
		else kinds.set(key, { ...e, count: 1 });
	}
	return [...kinds.values()];
}
function show(p) {
	const now = Date.parse(p.time);
	remember(p);
	document.title = p.host ? `rdsd on ${p.host}` : "rdsd";
	document.getElementById("version").textContent = p.host ? `${p.version} on ${p.host}` : p.version;
	document.getElementById("health").replaceChildren(...(p.health.length ? p.health.map(h => healthItem(h, now)) : [el("li", { class: "ok" }, "all is well")]));
	document.getElementById("summary").textContent = `pid ${p.pid}, instance ${p.instance}, up ${span(p.uptime_ns / 1e9)}; engine ${p.engine.state}, ` +
		`turns p99 below ${seconds(p.engine.turn_p99_ns / 1e9)}, longest ${seconds(p.engine.turn_max_ns / 1e9)}, ${p.engine.stalls} stalls`;
	trouble(p.error ? `peers are not known: ${p.error}` : "");
	drawCharts(p);
	const up = p.peers.filter(x => x.state === "up").length;
	document.getElementById("peercount").textContent = `${up} of ${p.peers.length + p.more_peers} up` + (p.more_peers ? `, ${p.more_peers} not shown` : "");
	fill("peers", p.peers.map(x => peerRow(x, now)), false);
	fill("backlog", p.stalls.map(s => row([s.remote], [s.lane, "n"], [actors[s.waits_for] ?? s.waits_for, s.oldest_ns > 5e9 ? "warn" : ""], [time(s.oldest_ns), "n"],
		[`${count(s.queued_messages)} / ${bytes(s.queued_bytes)}`, "n"], [`${count(s.unacked_messages)} / ${bytes(s.unacked_bytes)}`, "n"], [failure(s.last_error, s.last_error_at, now), "long"])));
	fill("events", distinct(p.events).map(e => row([new Date(e.time).toLocaleTimeString("en-GB")], [e.count > 1 ? `${e.event} (${e.count} times)` : e.event, e.level === "info" ? "" : e.level], [e.peer ?? ""], [e.error, "long"])));
	document.getElementById("gauges").replaceChildren(...gauges.map(([name, f]) => [name, f(p.counters)]).filter(([, text]) => !/^0( B)?$/.test(text))
		.map(([name, text]) => el("div", {}, el("dt", {}, name), el("dd", {}, text))));
}
function trouble(text) {
	const e = document.getElementById("trouble");
	e.textContent = text;
	e.hidden = !text;
}
async function tick() {
	try {
		const r = await fetch("page.json?after=" + last, { cache: "no-store" });
		if (!r.ok) throw new Error("status " + r.status);
		show(await r.json());
	} catch (e) {
		trouble(`the daemon does not answer (${e.message}); what is shown is old`);
	}
	setTimeout(tick, document.hidden ? 10000 : 2000);
}
tick();
