// Splits lines, with what Node has alone; answers later than it reads, as a program does that waits for something.
"use strict";
let text = "";
let begun = false;
const say = (message) => process.stdout.write(JSON.stringify(message) + "\nend\n");
process.stdin.setEncoding("utf8");
process.stdin.on("data", (chunk) => {
  text += chunk;
  const parts = text.split("\nend\n");
  text = parts.pop();
  parts.map((part) => JSON.parse(part)).forEach(take);
});
function take(message) {
  if (!begun) {
    begun = true;
    require("fs").closeSync(require("fs").openSync(message.pidDir + "/" + process.pid, "w"));
    say({ pid: process.pid });
  } else if (Array.isArray(message)) {
    return; // task ids
  } else if (message.stream === "__heartbeat") {
    say({ command: "sync" });
  } else {
    setTimeout(() => {
      message.tuple[0].split(" ").forEach((word) => say({ command: "emit", tuple: [word, 1] }));
      say({ command: "ack", id: message.id });
    }, 2);
  }
}
