// Keeps the page as it is in the logs: asks the server for <main>, and changes only what differs, so that nothing moves,
// the focus stays, and what is unfolded stays unfolded. Without this script the page loads itself again from time to time.
"use strict";

(() => {
  const interval = 1000 * Number(document.body.dataset.interval);
  const connection = document.getElementById("connection");
  const live = connection.textContent;
  let ahead = Number(document.body.dataset.made) - Date.now(); // of the server's clock, in ms
  let failures = 0;
  let asked = null; // since when an answer is awaited
  const patience = 8000; // ms. A server that was stopped, or hangs, ends no connection

  const units = [[31536000, "y"], [86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];

  // A duration with its two largest units, as the server writes it.
  function lasting(ms) {
    let left = Math.max(0, Math.floor(ms / 1000));
    if (left < 10) return `${left} s`;
    const parts = [];
    let begun = 0;
    for (const [size, unit] of units) {
      const count = Math.floor(left / size);
      left %= size;
      if (count || begun) {
        begun += 1;
        if (count) parts.push(`${count} ${unit}`);
      }
      if (begun === 2) break;
    }
    return parts.join(" ");
  }

  function count() {
    const now = Date.now() + ahead;
    for (const age of document.querySelectorAll(".age")) {
      const text = lasting(now - Number(age.dataset.ms));
      if (age.firstChild && age.firstChild.data !== text) age.firstChild.data = text;
    }
    const silent = asked === null ? 0 : performance.now() - asked;
    if (silent > patience) {
      say(`The server has not answered for ${lasting(silent)}. What you see is the last that was read.`, true);
    }
  }

  // Make an element equal to another one, and keep the nodes that are equal already.
  function become(old, fresh) {
    for (const { name } of [...old.attributes]) {
      if (!fresh.hasAttribute(name) && name !== "open") old.removeAttribute(name);
    }
    for (const { name, value } of [...fresh.attributes]) {
      if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    }
    if (old.classList.contains("age") && fresh.firstChild) return; // count() writes its text
    const wanted = [...fresh.childNodes];
    wanted.forEach((node, at) => {
      let here = old.childNodes[at];
      if (node.nodeType === Node.ELEMENT_NODE && node.id && here && here.id !== node.id) {
        const known = [...old.children].find((each) => each.id === node.id);
        if (known) {
          old.insertBefore(known, here);
          here = known;
        }
      }
      if (!here) {
        old.append(document.importNode(node, true));
      } else if (here.nodeType !== node.nodeType || here.nodeName !== node.nodeName || (here.id || "") !== (node.id || "")) {
        old.replaceChild(document.importNode(node, true), here);
      } else if (node.nodeType === Node.ELEMENT_NODE) {
        become(here, node);
      } else if (here.data !== node.data) {
        here.data = node.data;
      }
    });
    while (old.childNodes.length > wanted.length) old.lastChild.remove();
  }

  function say(text, lost) {
    if (connection.textContent !== text) connection.textContent = text;
    document.body.classList.toggle("lost", lost);
  }

  async function look() {
    if (document.hidden || asked !== null) return;
    asked = performance.now();
    try {
      const answer = await fetch("main", { cache: "no-store", signal: AbortSignal.timeout(30000) });
      if (!answer.ok) throw new Error(String(answer.status));
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("main");
      ahead = Number(fresh.dataset.made) - Date.now();
      become(document.getElementById("main"), fresh);
      count();
      failures = 0;
      asked = null;
      say(live, false);
    } catch {
      asked = null;
      failures += 1;
      if (failures > 1) say("The server does not answer. What you see is the last that was read.", true);
    }
  }

  async function run() {
    await look();
    setTimeout(run, interval * Math.min(1 + failures, 10));
  }

  setInterval(count, 1000);
  setTimeout(run, interval);
  document.addEventListener("visibilitychange", look);
})();
