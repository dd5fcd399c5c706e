"use strict";

// Each chart: one or two rates (per second) or values of counters of /page.json.
const charts = [
	{ title: "messages", a: ["sent", c => c.send_queued], b: ["received", c => c.recv_queued], rate: true, unit: count },
	{ title: "payload", a: ["sent", c => c.rdsd_send_bytes], b: ["received", c => c.rdsd_recv_bytes], rate: true, unit: bytes },
	{ title: "RDMA", a: ["written", c => c.send_rdma_bytes], b: ["read", c => c.recv_rdma_bytes], rate: true, unit: bytes },
	{ title: "on this host", a: ["messages", c => c.rdsd_local_messages], rate: true, unit: count },
	{ title: "waiting", a: ["messages not acked", c => c.rdsd_queued_messages], b: ["operations", c => c.rdsd_ops_outstanding], unit: count },
	{ title: "congestion", a: ["ports", c => c.rdsd_congested_ports], b: ["refused/s", c => c.rdsd_refused_sent + c.rdsd_refused_received], rateB: true, unit: count },
	{ title: "connections", a: ["peers up", c => c.rdsd_peers_up], b: ["broken/s", c => c.conn_reset], rateB: true, unit: count },
	{ title: "held for readers", a: ["bytes", c => c.rdsd_held_bytes], unit: bytes },
];
const gauges = [
	["clients", c => count(c.rdsd_clients)], ["sockets", c => count(c.rdsd_sockets)], ["regions", c => count(c.rdsd_regions)],
	["registered", c => bytes(c.rdsd_registered_bytes)], ["shared with clients", c => bytes(c.rdsd_shared_bytes)],
	["operations: success", c => count(c.rdsd_op_success)], ["dropped", c => count(c.rdsd_op_dropped)], ["unknown", c => count(c.rdsd_op_unknown)],
	["refused", c => count(c.rdsd_op_refused)], ["messages lost", c => count(c.rdsd_messages_lost)],
	["sent again", c => count(c.rdsd_retransmitted)], ["over a quota", c => count(c.rdsd_quota_refused)],
	["clients ended for breaking rules", c => count(c.rdsd_client_violations)], ["protocol errors", c => count(c.rdsd_protocol_errors)],
];
const keep = 120; // samples, one a second
const samples = [];
const lastSeq = new Map(); // of each peer: [time, next_tx_seq]

function count(n) {
	for (const [u, f] of [["G", 1e9], ["M", 1e6], ["k", 1e3]]) if (n >= f) return (n / f).toPrecision(3) + u;
	return n === Math.round(n) ? String(n) : n.toFixed(1);
}
function bytes(n) {
	for (const [u, f] of [["TiB", 2 ** 40], ["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]]) if (n >= f) return (n / f).toPrecision(3) + " " + u;
	return Math.round(n) + " B";
}
function duration(ns) {
	const s = Math.floor(ns / 1e9);
	if (s < 120) return s + " s";
	if (s < 7200) return Math.floor(s / 60) + " min";
	return s < 172800 ? Math.floor(s / 3600) + " h" : Math.floor(s / 86400) + " days";
}
function el(name, attrs, ...children) {
	const svg = ["svg", "polyline", "line", "text"].includes(name);
	const e = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
	for (const k in attrs) e.setAttribute(k, attrs[k]);
	e.append(...children);
	return e;
}

// series is what chart c shows of counter f over the samples.
function series(f, rate) {
	const out = [];
	for (let i = rate ? 1 : 0; i < samples.length; i++) {
		const s = samples[i], v = f(s.counters);
		if (!rate) { out.push(v); continue; }
		const p = samples[i - 1], dt = (s.t - p.t) / 1000;
		out.push(dt > 0 && v >= f(p.counters) ? (v - f(p.counters)) / dt : 0);
	}
	return out;
}
function draw(c) {
	const w = 300, h = 70, lines = [["a", c.a, c.rate], ["b", c.b, c.rate || c.rateB]].filter(l => l[1]);
	const data = lines.map(l => series(l[1][1], l[2]));
	const top = Math.max(1, ...data.flat());
	const head = el("figcaption", {}, el("span", {}, c.title));
	const svg = el("svg", { viewBox: `0 0 ${w} ${h}`, preserveAspectRatio: "none", role: "img", "aria-label": c.title },
		el("line", { x1: 0, x2: w, y1: h - 0.5, y2: h - 0.5 }), el("line", { x1: 0, x2: w, y1: 10.5, y2: 10.5 }));
	lines.forEach(([cls, [name]], i) => {
		const d = data[i];
		const pts = d.map((v, k) => `${(w * (keep - d.length + k) / (keep - 1)).toFixed(1)},${(h - 1 - (h - 12) * v / top).toFixed(1)}`);
		svg.append(el("polyline", { class: cls, points: pts.join(" ") }));
		head.append(el("span", { class: cls }, name + " ", el("b", {}, c.unit(d.at(-1) ?? 0))));
	});
	return el("figure", {}, head, svg, el("small", {}, "top " + c.unit(top)));
}
function peerRow(p, t) {
	const key = [p.local, p.remote, p.lane].join(), before = lastSeq.get(key);
	// Sequences pass what a number holds: differences of BigInts do not.
	const seq = BigInt(p.next_tx_seq);
	const rate = before && t > before[0] && seq >= before[1] ? Number(seq - before[1]) / ((t - before[0]) / 1000) : 0;
	lastSeq.set(key, [t, seq]);
	const cells = [[p.remote], [p.lane], [p.state, p.state], [p.transport], [count(p.queued_messages), "n"], [count(p.unacked_messages), "n"],
		[p.send_credits, "n"], [count(rate), "n"], [count(p.resets), "n"], [count(p.retransmitted_messages), "n"], [count(p.lost_messages), "n"], [p.last_error]];
	return el("tr", {}, ...cells.map(([text, cls]) => el("td", cls ? { class: cls } : {}, String(text))));
}
function show(p) {
	const t = Date.parse(p.time);
	samples.push({ t, counters: p.counters });
	if (samples.length > keep) samples.shift();
	document.getElementById("version").textContent = p.version;
	document.getElementById("summary").textContent = `pid ${p.pid}, instance ${p.instance}, up ${duration(p.uptime_ns)}; engine ${p.engine.state}, ` +
		`turns p99 below ${(p.engine.turn_p99_ns / 1000).toFixed(1)} \u00b5s, longest ${(p.engine.turn_max_ns / 1e6).toFixed(2)} ms, ${p.engine.stalls} stalls`;
	const wrong = [];
	if (p.engine.late_ns > 5e9) wrong.push(`the engine has not turned for ${duration(p.engine.late_ns)}`);
	if (p.error) wrong.push(`peers are not known: ${p.error}`);
	trouble(wrong.join("; "));
	document.getElementById("charts").replaceChildren(...charts.map(draw));
	const up = p.peers.filter(x => x.state === "up").length;
	document.getElementById("peercount").textContent = `${up} of ${p.peers.length + p.more_peers} up` + (p.more_peers ? `, ${p.more_peers} not shown` : "");
	document.querySelector("#peers tbody").replaceChildren(...p.peers.map(x => peerRow(x, t)));
	document.getElementById("gauges").replaceChildren(...gauges.map(([name, f]) => el("div", {}, el("dt", {}, name), el("dd", {}, f(p.counters)))));
}
function trouble(text) {
	const e = document.getElementById("trouble");
	e.textContent = text;
	e.hidden = !text;
}
async function tick() {
	try {
		const r = await fetch("page.json", { cache: "no-store" });
		if (!r.ok) throw new Error("status " + r.status);
		show(await r.json());
	} catch (e) {
		trouble(`the daemon does not answer (${e.message}); what is shown is old`);
	}
	setTimeout(tick, document.hidden ? 5000 : 1000);
}
tick();
