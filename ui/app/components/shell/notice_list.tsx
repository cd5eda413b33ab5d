// Notices, and the state of the connection.
import { useEffect } from "preact/hooks";
import { isServerUp } from "../../api/server_state";
import { closeNotice, type Notice, notices } from "../../url/notices";

const INFO_TIME_MS = 4_000;

export function NoticeList() {
  return (
    <div class="notice-list" aria-live="polite">
      {notices.value.map((notice) => (
        <NoticeBox key={notice.id} notice={notice} />
      ))}
    </div>
  );
}

// Warnings and errors stay until they are closed, because they may be read late.
function NoticeBox({ notice }: { readonly notice: Notice }) {
  const { id, kind, text } = notice;
  useEffect(() => {
    if (kind !== "info") return;
    const timer = setTimeout(() => closeNotice(id), INFO_TIME_MS);
    return () => clearTimeout(timer);
  }, [id, kind]);
  return (
    <div class={`notice is-${kind}`} role={kind === "error" ? "alert" : "status"}>
      <span class="notice-text">{text}</span>
      <button
        type="button"
        class="button is-plain is-icon"
        aria-label="Close notice"
        onClick={() => closeNotice(id)}
      >
        ×
      </button>
    </div>
  );
}

export function ServerBanner() {
  if (isServerUp.value) return null;
  return (
    <div class="server-banner" role="alert">
      <strong>The server does not respond.</strong> The page retries and continues by itself when the server
      returns.
    </div>
  );
}
