// Menu of help, plain pages of the server, tenant and token.
import { serverUrl } from "../../api/server_state";
import { hrefOf } from "../../url/store";
import { isHelpOpen } from "../help";
import { isAccessOpen } from "./access_dialog";
import { Menu } from "./menu";

/** Pages of the server without scripts. */
export const PLAIN_PAGES: readonly (readonly [path: string, title: string])[] = [
  ["shards", "Shards"],
  ["compaction", "Compaction"],
  ["query-diagnostics", "Query diagnostics"],
  ["config", "Configuration"],
  ["metrics", "Metrics"],
  ["ready", "Readiness"],
];

export function HelpMenu() {
  return (
    <Menu label="Help" title="Help" align="right">
      {(close) => (
        <div class="help-menu">
          <MenuAction
            title="Keys"
            hint="?"
            run={() => {
              close();
              isHelpOpen.value = true;
            }}
          />
          <MenuAction
            title="Tenant and token…"
            run={() => {
              close();
              isAccessOpen.value = true;
            }}
          />
          <a href={hrefOf({ page: "start" })}>Send profiles</a>
          <hr />
          <p>Pages of the server</p>
          {PLAIN_PAGES.map(([path, title]) => (
            <a key={path} href={serverUrl(path)}>
              {title} <code>/{path}</code>
            </a>
          ))}
        </div>
      )}
    </Menu>
  );
}

function MenuAction({ title, hint, run }: { title: string; hint?: string; run: () => void }) {
  return (
    <button type="button" onClick={run}>
      {title} {hint !== undefined && <kbd>{hint}</kbd>}
    </button>
  );
}
