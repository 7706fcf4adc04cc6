'use strict';
const $ = id => document.getElementById(id);
const SVG = document.createElementNS.bind(document, $('done').namespaceURI);
let token = sessionStorage.getItem('foothold-token') || '';
let timer = 0;
// A link may bring the token behind its '#', which never leaves the browser; it goes from the address bar at once.
if (location.hash.startsWith('#token=')) {
  token = decodeURIComponent(location.hash.slice(7));
  sessionStorage.setItem('foothold-token', token);
  history.replaceState(null, '', location.pathname);
}

function el(kind, text, name) {
  const node = document.createElement(kind);
  if (text !== undefined) node.textContent = text;
  if (name) node.className = name;
  return node;
}
function show(id, on) { $(id).hidden = !on; }
function text(id, value) { const node = $(id); if (node.textContent !== value) node.textContent = value; }
function secs(value) {
  if (value < 60) return value.toFixed(1) + ' s';
  const whole = Math.floor(value), h = Math.floor(whole / 3600), m = Math.floor(whole / 60) % 60, s = whole % 60;
  return h ? (h > 47 ? Math.floor(h / 24) + ' d ' + h % 24 + ' h' : h + ' h ' + m + ' min') : m + ' min ' + s + ' s';
}
async function ask(path, more) {
  const headers = token ? { authorization: 'Bearer ' + token } : {};
  const answer = await fetch('api/v1/' + path, { headers, cache: 'no-store', ...more });
  if (answer.ok) return answer;
  let problem = {};
  try { problem = await answer.json(); } catch { /* not ours */ }
  throw Object.assign(new Error(problem.error || answer.statusText), { status: answer.status, problem });
}
function rect(x, width, name) {
  const node = SVG('rect');
  const set = { x: x.toFixed(2), y: 0, width: Math.max(width, .35).toFixed(2), height: 10, class: name, rx: .4 };
  for (const key in set) node.setAttribute(key, set[key]);
  return node;
}
function lane(kind, label, one, scale, running, failures) {
  const row = el('div', undefined, 'lane ' + kind);
  row.append(el('span', label, 'label'));
  const svg = SVG('svg');
  svg.setAttribute('viewBox', '0 0 100 10');
  svg.setAttribute('preserveAspectRatio', 'none');
  svg.append(rect(0, 100, 'track'));
  const left = one.start * scale, width = one.secs * scale;
  svg.append(rect(left, width, failures ? 'fail' : running ? 'run' : 'work'));
  if (one.waitingSecs > 0) svg.append(rect(left, Math.min(one.waitingSecs, one.secs) * scale, 'wait'));
  const hover = SVG('title');
  hover.textContent = label + ': began at ' + secs(one.start) + ', took ' + secs(one.secs) +
    (one.waitingSecs ? ', waited ' + secs(one.waitingSecs) : '') + (failures ? ', failed ' + failures + ' times' : '');
  svg.append(hover);
  row.append(svg, el('span', secs(one.secs), 'secs'));
  return row;
}
function busy(state) { return state === 'started' || state === 'progress' || state === 'waiting'; }
function drawTimeline(times) {
  let end = 1;
  for (const phase of times.phases) for (const step of phase.steps) end = Math.max(end, step.start + step.secs);
  const rows = [];
  for (const phase of times.phases) {
    const failed = phase.steps.filter(step => step.state === 'failed').length;
    rows.push(lane('phase', phase.phase, phase, 100 / end, phase.steps.some(step => busy(step.state)), failed));
    if (phase.steps.length > 1 || phase.steps[0].step !== phase.phase) {
      for (const step of phase.steps) rows.push(lane('sub', step.step, step, 100 / end, busy(step.state), step.failures));
    }
  }
  $('timeline').replaceChildren(...rows);
  text('scale', 'power-on to ' + secs(end) + (times.ready ? ', ready after ' + secs(times.ready) : ''));
}
function item(step, now) {
  const node = el('div', undefined, 'item');
  node.append(el('span', secs(Math.max(0, now - step.since)), 'when'));
  node.append(el('b', step.phase + ' / ' + step.step));
  const detail = step.detail || {};
  if (step.state === 'failed') {
    node.append(el('div', detail.cause || 'failed', 'cause is-failed'));
    if (detail.next) node.append(el('div', 'Next: ' + detail.next));
    if (detail.log) node.append(el('div', 'Log: ' + detail.log, 'more'));
  } else if (step.state === 'waiting') {
    node.append(el('div', 'waits for ' + (detail.for || 'something'), 'is-waiting'));
    if (detail.why) node.append(el('div', detail.why, 'more'));
  } else {
    const more = words(detail);
    if (more) node.append(el('div', more, 'more'));
  }
  return node;
}
function words(detail) {
  const say = value => Array.isArray(value) ? value.join(', ') : typeof value === 'object' ? JSON.stringify(value) : value;
  return Object.entries(detail || {}).map(([key, value]) => key === 'secs' ? secs(value) : key + ' ' + say(value)).join(' · ');
}
function drawFacts(status) {
  const rows = [];
  const add = (name, value, mono) => { if (value) rows.push(el('dt', name), el('dd', value, mono && 'mono')); };
  add('Host name', status.hostname);
  add('Addresses', status.addresses.join(', '));
  if (status.data) add('Data', status.data.on === 'ram' ? 'in memory: ' + status.data.reason : 'on ' + status.data.device);
  if (status.medium.checkedPercent !== undefined) {
    const bad = status.medium.failures.length;
    add('Medium', status.medium.checkedPercent + ' % verified, ' + (bad ? bad + ' damaged places' : 'no damage'));
  }
  add('Release', status.release, true);
  add('Authority', status.webFingerprint, true);
  $('facts').replaceChildren(...rows);
}
function drawEvents(events) {
  const rows = events.slice(-40).reverse().map(event => {
    const row = el('tr');
    row.append(el('td', event.t.toFixed(1), 't'), el('td', event.phase + '/' + event.step, 's'),
      el('td', event.state, 's is-' + event.state), el('td', words(event.detail), 'd'));
    return row;
  });
  $('events').tBodies[0].replaceChildren(...rows);
}
function doneAbout(time) { return time ? ', done about ' + time.slice(11, 16) + ' UTC' : ''; }
function at(time) { return time ? time.slice(0, 19).replace('T', ' ') : ''; }
function drawHosts(list) {
  const rows = list.hosts.map(host => {
    const row = el('tr'), waits = host.waits || {}, last = host.last || {};
    row.append(el('td', host.namespace + '/' + host.name, 's'), el('td', host.state, 's'),
      el('td', host.error || waits.for || 'nothing', host.error ? 'd is-failed' : 'd'), el('td', at(waits.until), 't'),
      el('td', host.last ? at(last.at) + ' ' + last.says : 'none', 'd'));
    return row;
  });
  $('hosts').tBodies[0].replaceChildren(...rows);
  text('unasked', (list.problems || []).join('; '));
  show('servers', rows.length > 0 || !!list.problems);
}
function button(label, path, name) {
  const node = el('button', label, 'quiet');
  node.addEventListener('click', () => save(path, name));
  return node;
}
const CALLED = { Provisioning: 'Cluster', BareMetalHost: 'Server' };
let siteShown = '';
function drawSite(site) {
  // A button that is made anew while it is pressed does nothing.
  const text = JSON.stringify(site);
  if (text === siteShown) return;
  siteShown = text;
  const rows = [];
  for (const object of site.objects || []) {
    const row = el('tr'), named = object.namespace + '/' + object.name, more = el('td');
    const path = 'clusters/' + named;
    const cluster = object.kind === 'Provisioning';
    if (object.kubeconfig) more.append(button('Kubeconfig', path + '/kubeconfig', object.name + '.kubeconfig.yaml'));
    row.append(el('td', (CALLED[object.kind] || object.kind) + ' ' + named, 's'), el('td', object.state + doneAbout(object.eta), object.ready ? 's is-done' : 's is-waiting'),
      el('td', at(object.since), 't'), el('td', object.message || '', 'd'), more);
    rows.push(row);
    for (const node of object.nodes || []) {
      const sub = el('tr'), log = el('td');
      if (cluster) log.append(button('Log', path + '/files/' + node.name + '.log', node.name + '.log'));
      sub.append(el('td', '\u00a0\u00a0' + node.name + (node.ip ? ' ' + node.ip : ''), 's'), el('td', node.state + doneAbout(node.eta), 's'), el('td', '', 't'),
        el('td', node.message || '', node.message ? 'd is-failed' : 'd'), log);
      rows.push(sub);
    }
  }
  $('site').tBodies[0].replaceChildren(...rows);
  show('made', rows.length > 0);
}
// Seldom: each answer asks the cluster and Ironic. A box that provisions no servers says 404, and is not asked again.
let hostsAt = 0;
async function pollHosts() {
  if (Date.now() < hostsAt) return;
  hostsAt = Date.now() + 10000;
  try {
    drawHosts(await (await ask('hosts')).json());
  } catch (error) {
    if (error.status === 404) { hostsAt = Infinity; show('servers', false); }
    text('unasked', error.message);
  }
}
function drawTrouble(status) {
  const failed = status.steps.filter(step => step.state === 'failed').map(step => item(step, status.uptimeSecs));
  for (const damage of status.medium.failures) {
    const node = el('div', undefined, 'item');
    node.append(el('b', 'medium / ' + damage.what), el('div', damage.message, 'cause is-failed'));
    failed.push(node);
  }
  $('failures').replaceChildren(...failed);
  show('trouble', failed.length > 0);
  return failed.length;
}
function draw(status, times) {
  const trouble = drawTrouble(status);
  text('name', status.name + ' ' + status.version);
  document.title = status.name + ' – Foothold';
  text('release', (status.hostname || '') + (status.release ? ' · release ' + status.release.slice(0, 16) : ''));
  show('devkey', status.developmentKey);
  show('mode', status.mode !== 'run');
  text('mode', status.mode + ' mode');
  const badge = $('state');
  badge.className = 'badge ' + (trouble ? 'bad' : status.ready ? 'good' : '');
  text('state', trouble ? 'needs attention' : status.ready ? 'ready' : 'coming up');
  const running = status.steps.filter(step => busy(step.state));
  const last = running[running.length - 1];
  text('phase', status.ready ? 'ready' : last ? last.phase : status.phase);
  text('step', status.ready && times.ready ? 'after ' + secs(times.ready) : last ? last.step : '');
  const eta = status.eta ? ', about ' + Math.max(0, Math.round(status.eta.totalSecs - status.uptimeSecs)) + ' s left' : '';
  text('progress', status.progress.done + ' of ' + status.progress.total + ' steps' + eta);
  $('done').setAttribute('width', 100 * status.progress.done / Math.max(1, status.progress.total));
  text('memory', status.memory.usedMib + ' of ' + status.memory.totalMib + ' MiB');
  $('used').setAttribute('width', 100 * status.memory.usedMib / Math.max(1, status.memory.totalMib));
  text('uptime', secs(status.uptimeSecs));
  text('clock', status.clock.replace('T', ' ').replace('Z', ' UTC'));
  const now = running.map(step => item(step, status.uptimeSecs));
  $('now').replaceChildren(...(now.length ? now : [el('div', status.ready ? 'Nothing to do: every declared service answers.' : 'Between two steps.', 'more')]));
  drawFacts(status);
  drawTimeline(times);
  drawEvents(status.recent);
  drawSite(status.site || {});
}
async function poll() {
  clearTimeout(timer);
  try {
    // One after the other: a wrong token counts as one wrong try.
    const status = await (await ask('status')).json();
    const times = await (await ask('timeline')).json();
    draw(status, times);
    show('door', false);
    show('inside', $('given').hidden);
    if (status.ready) await pollHosts();
  } catch (error) {
    if (error.status === 401 || error.status === 429) return shut(error);
    $('state').className = 'badge bad';
    text('state', error.status ? error.message : 'no answer from the box');
  }
  timer = setTimeout(poll, document.hidden ? 10000 : 2000);
}
function shut(error) {
  show('inside', false);
  show('door', true);
  show('claim', !!error.problem.claimable);
  show('enter', !error.problem.claimable);
  $('state').className = 'badge warn';
  text('state', error.problem.claimable ? 'not claimed yet' : 'locked');
  text('refused', token ? error.message + (error.status === 429 ? ': ' + error.problem.hint : '') : '');
  token = '';
  sessionStorage.removeItem('foothold-token');
  (error.problem.claimable ? $('code') : $('token')).focus();
}
function open(next) { token = next; sessionStorage.setItem('foothold-token', next); return poll(); }
async function save(path, name) {
  text('told', 'Fetching ' + name + ' …');
  try {
    const link = el('a');
    link.href = URL.createObjectURL(await (await ask(path)).blob());
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60000);
    text('told', name + ' saved.');
  } catch (error) {
    text('told', error.message + (error.problem && error.problem.hint ? ' – ' + error.problem.hint : ''));
  }
}
$('enter').addEventListener('submit', event => { event.preventDefault(); open($('token').value.trim()); $('token').value = ''; });
$('claim').addEventListener('submit', async event => {
  event.preventDefault();
  text('unclaimed', '');
  try {
    const body = JSON.stringify({ code: $('code').value });
    const answer = await ask('claim', { method: 'POST', body, headers: { 'content-type': 'application/json' } });
    const given = (await answer.json()).token;
    text('newtoken', given);
    show('given', true);
    await open(given);
  } catch (error) {
    text('unclaimed', error.message + (error.problem && error.problem.hint ? ': ' + error.problem.hint : ''));
  }
});
$('kept').addEventListener('click', () => { text('newtoken', ''); show('given', false); poll(); });
$('kubeconfig').addEventListener('click', () => save('kubeconfig', 'kubeconfig.yaml'));
$('bundle').addEventListener('click', () => save('support-bundle', 'foothold-support.tar.gz'));
$('leave').addEventListener('click', () => { token = ''; sessionStorage.removeItem('foothold-token'); poll(); });
document.addEventListener('visibilitychange', () => { if (!document.hidden && token) poll(); });
poll();
