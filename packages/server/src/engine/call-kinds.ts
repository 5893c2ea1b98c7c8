/**
 * - `client`: the client executes it, and sees it as it comes.
 * - `client-later`: the client's too, but the loop may yet refuse it. Shown when that is known.
 * - `server`: executed here.
 * - `refused`: the loop will answer it with an error. The client never gets to execute it.
 */
export type CallKind = 'client' | 'client-later' | 'server' | 'refused';

/** Decides of a call by its name, when it opens. */
export interface CallKinds {
  kindOf(name: string, turn: number, index: number): CallKind;
  /** `server_label` of a call that the client does not execute; of one that is refused the server's own. */
  labelOf(name: string): string;
}
