// Reverse proxy under a path prefix. It can serve a build of the UI and replace single responses.
import { readFile } from "node:fs/promises";
import { createServer, type IncomingMessage, request, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { extname, join, normalize } from "node:path";

const CONTENT_TYPES: Readonly<Record<string, string>> = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".svg": "image/svg+xml",
};

/** Header that the server sends with the page. Tests of a build outside of the server need the same. */
export const CONTENT_SECURITY_POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
  "worker-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/** Response in place of that of the server. */
export interface ReplacedResponse {
  readonly status: number;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
}

export interface ProxyOptions {
  /** Address of the server without a slash at its end. */
  readonly target: string;
  /** Path before that of the server, such as `/tools/profiles`. */
  readonly prefix?: string;
  /** Folder with a build of the UI. Without one, the files of the server are used. */
  readonly dist?: string | undefined;
}

export class TestProxy {
  /** Decides on a request; undefined passes it on. */
  replace: (path: string, headers: IncomingMessage["headers"]) => ReplacedResponse | undefined = () =>
    undefined;
  private readonly server: Server;

  private constructor(
    private readonly options: Required<Omit<ProxyOptions, "dist">> & Pick<ProxyOptions, "dist">,
  ) {
    this.server = createServer((incoming, outgoing) => {
      this.respond(incoming, outgoing).catch((error: unknown) => {
        outgoing.writeHead(502).end(String(error));
      });
    });
  }

  static async start({ target, prefix = "", dist }: ProxyOptions): Promise<TestProxy> {
    const proxy = new TestProxy({ target, prefix, dist });
    await new Promise<void>((done) => proxy.server.listen(0, "127.0.0.1", done));
    return proxy;
  }

  /** Address with the prefix, without a slash at its end. */
  get url(): string {
    return `http://127.0.0.1:${(this.server.address() as AddressInfo).port}${this.options.prefix}`;
  }

  async stop(): Promise<void> {
    this.server.closeAllConnections();
    await new Promise((done) => this.server.close(done));
  }

  private async respond(incoming: IncomingMessage, outgoing: ServerResponse): Promise<void> {
    const { prefix, dist } = this.options;
    const url = incoming.url ?? "/";
    if (!url.startsWith(`${prefix}/`)) {
      outgoing.writeHead(404).end("outside of the prefix");
      return;
    }
    const path = url.slice(prefix.length);
    const replaced = this.replace(path, incoming.headers);
    if (replaced !== undefined) {
      outgoing.writeHead(replaced.status, replaced.headers ?? {}).end(replaced.body ?? "");
      return;
    }
    const name = /^\/ui\/([^?]*)/.exec(path)?.[1];
    if (dist !== undefined && name !== undefined) {
      await sendFile(dist, name === "" ? "index.html" : name, outgoing);
      return;
    }
    this.forward(path, incoming, outgoing);
  }

  private forward(path: string, incoming: IncomingMessage, outgoing: ServerResponse): void {
    const forwarded = request(
      `${this.options.target}${path}`,
      { method: incoming.method, headers: incoming.headers },
      (response) => {
        outgoing.writeHead(response.statusCode ?? 502, response.headers);
        response.pipe(outgoing);
      },
    );
    forwarded.on("error", () => {
      if (outgoing.headersSent) outgoing.destroy();
      else outgoing.writeHead(502).end("the server does not respond");
    });
    // A browser that cancels a call cancels it on the server too.
    outgoing.on("close", () => forwarded.destroy());
    incoming.pipe(forwarded);
  }
}

async function sendFile(dist: string, name: string, outgoing: ServerResponse): Promise<void> {
  const file = normalize(name).replace(/^(\.\.[/\\])+/, "");
  // Unknown paths are pages of old links.
  const isPage = extname(file) === "";
  const body = await readFile(join(dist, isPage ? "index.html" : file));
  outgoing.writeHead(200, {
    "Content-Type": CONTENT_TYPES[isPage ? ".html" : extname(file)] ?? "application/octet-stream",
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
  });
  outgoing.end(body);
}
