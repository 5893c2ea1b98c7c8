/**
 * - `client`: the client executes it, and sees it as it comes.
 * - `client-later`: the client's too, but the loop may yet refuse it. Shown when that is known.
 * - `server`: executed here.
 * - `refused`: the loop will answer it with an error. The client never gets to execute it.
 */
export type CallKind = 'client' | 'client-later' | 'server' | 'refused';

/** Decides of a call when it opens: by its name, and by its place among the calls of the reply. */
export interface CallKinds {
  kindOf(name: string, index: number): CallKind;
  /** `server_label` of a call that the client does not execute; of one that is refused the server's own. */
  labelOf(name: string): string;
}
