// Copies text. The clipboard API exists only on encrypted pages and loopback.
import { notify } from "../url/notices";

/** Copies a text and reports it in a notice. */
export async function copyText(text: string, message: string): Promise<void> {
  const isCopied = await copyByApi(text).catch(() => copyBySelection(text));
  if (isCopied) notify(message);
  else notify("The browser does not allow to copy. Select the text and copy it.", "warning");
}

async function copyByApi(text: string): Promise<boolean> {
  await navigator.clipboard.writeText(text);
  return true;
}

function copyBySelection(text: string): boolean {
  const area = document.createElement("textarea");
  const focused = document.activeElement;
  area.value = text;
  area.className = "visually-hidden";
  (document.querySelector("dialog[open]") ?? document.body).append(area);
  area.select();
  const isCopied = document.execCommand("copy");
  area.remove();
  if (focused instanceof HTMLElement) focused.focus();
  return isCopied;
}
