// Requests of a view as commands, and links to files.

import { accessHeaders, token } from "../api/credentials";
import { serverUrl } from "../api/server_state";
import { functionsRequest } from "../components/function_rows";
import {
  type AthanorCommand,
  EXPORT_FORMATS,
  exportUrl,
  flamegraphCommand,
  sandwichCommand,
  topCommand,
} from "../components/request_commands";
import { type PanelRequest, RequestPopover } from "../components/request_popover";
import { sandwichRequests } from "../components/sandwich_requests";
import { Menu } from "../components/shell/menu";
import { notify } from "../url/notices";
import { graphRequestOf, queryOf } from "../url/query_of";
import { view } from "../url/store";
import type { ViewName, ViewState } from "../url/view_state";

/** Rows of the table that the command lists. */
const COMMAND_ROWS = 100;
/** Nodes of the graph that the command draws. */
const COMMAND_NODES = 65_536;

const FUNCTIONS_METHOD = "athanor.v1.ExploreService/Functions";
const SANDWICH_METHOD = "athanor.v1.ExploreService/Sandwich";
const GRAPH_METHOD = "athanor.v1.ExploreService/Graph";

function panelRequests(name: ViewName, state: ViewState): readonly PanelRequest[] {
  switch (name) {
    case "table": {
      const request = functionsRequest(state);
      return request === undefined ? [] : [{ title: "Functions", method: FUNCTIONS_METHOD, request }];
    }
    case "sandwich": {
      const requests = sandwichRequests(state);
      if (requests === undefined) return [];
      return [
        { title: "Sandwich", method: SANDWICH_METHOD, request: requests.sandwich },
        { title: "Graph of callers", method: GRAPH_METHOD, request: requests.callers },
        { title: "Graph of callees", method: GRAPH_METHOD, request: requests.callees },
      ];
    }
    default: {
      const request = graphRequestOf(state);
      return request === undefined ? [] : [{ title: "Graph", method: GRAPH_METHOD, request }];
    }
  }
}

/** States what the command line cannot express of a table. */
function tableCommand(
  { search, tableSort, tableReversed }: ViewState,
  command: AthanorCommand,
): AthanorCommand {
  const isOrdered = tableSort === "self" && !tableReversed;
  return {
    ...command,
    omissions: [
      ...command.omissions,
      ...(search === "" ? [] : ["the search"]),
      ...(isOrdered ? [] : ["the order of rows"]),
    ],
  };
}

export function ViewRequests({ name }: { readonly name: ViewName }) {
  const state = view.value;
  const query = queryOf(state);
  const requests = panelRequests(name, state);
  if (query === undefined || requests.length === 0) return null;
  const selection = { query, transforms: state.transforms };
  const isShaped = state.inverted || state.frames !== "function";
  return (
    <RequestPopover
      requests={requests}
      command={(server) => {
        if (name === "table") return tableCommand(state, topCommand(selection, COMMAND_ROWS, server));
        if (name === "sandwich") return sandwichCommand(selection, state.sandwichFunction ?? "", server);
        const command = flamegraphCommand(selection, COMMAND_NODES, server);
        return isShaped
          ? { ...command, omissions: [...command.omissions, "inverted or grouped frames"] }
          : command;
      }}
    />
  );
}

/** Downloads a file with the headers of the tenant and the token, which a link cannot send. */
async function download(url: string, tenant: string, name: string) {
  try {
    const response = await fetch(url, { headers: accessHeaders(tenant) });
    if (!response.ok) throw new Error(await response.text());
    const link = document.createElement("a");
    link.href = URL.createObjectURL(await response.blob());
    link.download = name;
    link.click();
    URL.revokeObjectURL(link.href);
  } catch (error) {
    notify(`The download failed: ${error instanceof Error ? error.message : error}`, "error");
  }
}

/** Menu of the files of the query. */
export function ExportMenu() {
  const state = view.value;
  const query = queryOf(state);
  if (query === undefined) return null;
  const isPlainLink = state.tenant === "" && token.value === "";
  return (
    <Menu label="Export" title="Save the query as a file" class="is-plain tool-button" align="right">
      {(close) => (
        <div class="export-menu">
          {EXPORT_FORMATS.map(([format, title]) => {
            const url = exportUrl({ query, transforms: state.transforms }, format, serverUrl(""));
            return (
              <a
                key={format}
                href={url}
                download={format === "svg" ? undefined : ""}
                target={format === "svg" ? "_blank" : undefined}
                rel="noopener"
                onClick={(event) => {
                  close();
                  if (isPlainLink) return;
                  event.preventDefault();
                  void download(url, state.tenant, `profile.${format}`);
                }}
              >
                {title}
              </a>
            );
          })}
        </div>
      )}
    </Menu>
  );
}
