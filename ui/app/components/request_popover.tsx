// Requests of a panel as commands to copy.

import { serverUrl } from "../api/server_state";
import type { MethodName } from "../api/types";
import { view } from "../url/store";
import { copyText } from "./clipboard";
import {
  type AthanorCommand,
  curlCommand,
  type SeriesCommandParams,
  type ServerAddress,
  seriesCommand,
} from "./request_commands";
import { Menu } from "./shell/menu";
import "./request_popover.css";

export interface PanelRequest {
  readonly title: string;
  readonly method: MethodName;
  readonly request: unknown;
}

interface RequestPopoverProps {
  readonly requests: readonly PanelRequest[];
  readonly series?: SeriesCommandParams;
  readonly command?: (server: ServerAddress) => AthanorCommand;
}

export function RequestPopover({ requests, series, command }: RequestPopoverProps) {
  return (
    <Menu label="</>" title="Request as a command" class="is-plain tool-button" align="right">
      {() => <RequestCommands requests={requests} series={series} command={command} />}
    </Menu>
  );
}

type RequestCommandsProps = {
  readonly [Key in keyof RequestPopoverProps]: RequestPopoverProps[Key] | undefined;
};

function RequestCommands({ requests = [], series, command }: RequestCommandsProps) {
  const server = { baseUrl: serverUrl(""), tenant: view.value.tenant };
  const athanor = series === undefined ? command?.(server) : seriesCommand(series, server);
  return (
    <div class="request-commands">
      {requests.map(({ title, method, request }) => (
        <CommandBlock key={title} title={title} text={curlCommand(method, request, server)} kind="curl" />
      ))}
      {athanor === undefined ? null : (
        <CommandBlock title="Command line" text={athanor.command} kind="athanor">
          {athanor.omissions.length === 0
            ? undefined
            : `The command has no flag for ${athanor.omissions.join(", ")}.`}
        </CommandBlock>
      )}
    </div>
  );
}

interface CommandBlockProps {
  readonly title: string;
  readonly text: string;
  readonly kind: "curl" | "athanor";
  readonly children?: string | undefined;
}

function CommandBlock({ title, text, kind, children }: CommandBlockProps) {
  return (
    <section class="command-block">
      <header>
        <h3>
          {title} <span class="command-kind">{kind}</span>
        </h3>
        <button type="button" class="button" onClick={() => copyText(text, "Copied the command.")}>
          Copy
        </button>
      </header>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a scrolled area needs the focus for keys. */}
      <pre tabIndex={0} data-command={kind}>
        {text}
      </pre>
      {children === undefined ? null : <p class="command-omission">{children}</p>}
    </section>
  );
}
