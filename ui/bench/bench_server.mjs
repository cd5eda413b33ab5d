// Server of a bench: a process with a data folder of its own.

import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";

const START_TIMEOUT_MS = 60_000;
const CLOCK_TICK_MS = 10;
const SETTINGS = ["limits.reject_older_than=0s"];
const ADDRESS = /athanor listens on (http:\/\/127\.0\.0\.1:\d+)/;

// The program takes variables that begin like this as settings.
const ENVIRONMENT = Object.fromEntries(
  Object.entries(process.env).filter(([name]) => !name.startsWith("ATHANOR_")),
);

export class BenchServer {
  constructor(program, folder, process) {
    this.program = program;
    this.folder = folder;
    this.process = process;
    this.url = "";
  }

  /** Starts the program that ATHANOR_BIN names. */
  static async start() {
    const program = resolve(process.env["ATHANOR_BIN"] ?? "../target/release/athanor");
    const folder = mkdtempSync(join(tmpdir(), "athanor-bench-"));
    const settings = SETTINGS.flatMap((setting) => ["--set", setting]);
    const child = spawn(program, ["serve", "--data", folder, "--listen", "127.0.0.1:0", ...settings], {
      env: ENVIRONMENT,
      stdio: ["ignore", "ignore", "pipe"],
    });
    const server = new BenchServer(program, folder, child);
    try {
      await server.waitForAddress();
    } catch (error) {
      await server.stop();
      throw error;
    }
    return server;
  }

  waitForAddress() {
    let log = "";
    return new Promise((done, fail) => {
      const timer = setTimeout(() => fail(new Error(`the server did not start:\n${log}`)), START_TIMEOUT_MS);
      this.process.once("error", fail);
      this.process.once("exit", (code) => fail(new Error(`the server ended with ${code}:\n${log}`)));
      this.process.stderr.on("data", (chunk) => {
        if (this.url !== "") return;
        log += chunk;
        const match = ADDRESS.exec(log);
        if (match === null) return;
        this.url = match[1];
        clearTimeout(timer);
        done();
      });
    });
  }

  /** Pushes a reference set. */
  pushDataset(name) {
    execFileSync(
      this.program,
      ["dev", "bench", "--dataset", name, "--merges", "1", "--settle", "1s", "--url", this.url],
      {
        stdio: ["ignore", "ignore", "inherit"],
        env: ENVIRONMENT,
      },
    );
  }

  /** Processor time of the process in milliseconds. */
  processorTime() {
    const fields = readFileSync(`/proc/${this.process.pid}/stat`, "utf8").split(")").pop().trim().split(" ");
    return (Number(fields[11]) + Number(fields[12])) * CLOCK_TICK_MS;
  }

  /** Ends the process and removes its data. */
  async stop() {
    if (this.process.exitCode === null && this.process.pid !== undefined) {
      const exited = new Promise((done) => this.process.once("exit", done));
      this.process.kill("SIGKILL");
      await exited;
    }
    rmSync(this.folder, { recursive: true, force: true });
  }
}
