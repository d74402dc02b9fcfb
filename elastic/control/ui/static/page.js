// Puts in what has changed, as the server sends it, and lets executors be seen to go from one worker to another.
"use strict";

const MOVED_MS = 700;

function places() {
  const found = new Map();
  for (const chip of document.querySelectorAll("[data-key]")) found.set(chip.dataset.key, chip.getBoundingClientRect());
  return found;
}

function apply(sections) {
  const before = places();
  for (const [id, html] of Object.entries(sections)) {
    const section = document.getElementById(id);
    if (section) section.innerHTML = html;
  }
  for (const chip of document.querySelectorAll("[data-key]")) {
    const from = before.get(chip.dataset.key);
    const to = chip.getBoundingClientRect();
    if (!from) {
      if (before.size) chip.animate([{ opacity: 0 }, { opacity: 1 }], MOVED_MS);
    } else if (Math.abs(from.left - to.left) + Math.abs(from.top - to.top) > 1) {
      const way = `translate(${from.left - to.left}px, ${from.top - to.top}px)`;
      chip.animate([{ transform: way }, { transform: "none" }], { duration: MOVED_MS, easing: "ease-in-out" });
    }
  }
}

const source = new EventSource(document.body.dataset.live); // tries again by itself
source.onmessage = (message) => {
  document.body.classList.remove("away");
  apply(JSON.parse(message.data));
};
source.onerror = () => document.body.classList.add("away");
