// Splits lines into words, as a process that speaks Storm's multilang protocol.
"use strict";
const fs = require("fs");
const say = (message) => process.stdout.write(JSON.stringify(message) + "\nend\n");
let text = "";
let take = begin;

function begin(setup) {
  fs.writeFileSync(setup.pidDir + "/" + process.pid, "");
  say({ pid: process.pid });
  take = work;
}

function work(message) {
  if (message.stream === "__heartbeat") {
    say({ command: "sync" });
    return;
  }
  for (const word of message.tuple[0].split(/\s+/).filter((word) => word)) {
    say({ command: "emit", tuple: [word], anchors: [message.id], need_task_ids: false });
  }
  say({ command: "ack", id: message.id });
}

process.stdin.setEncoding("utf8");
process.stdin.on("data", (chunk) => {
  const messages = (text + chunk).split("\nend\n");
  text = messages.pop();
  for (const message of messages) take(JSON.parse(message));
});
