import type { Interrupt } from './interrupt.ts';
import type { AskedApproval, Decision } from './drive.ts';

/** Where a chat takes place. */
export interface Dialogue {
  /** What the user says next; nothing when they leave. */
  next(): Promise<string | undefined>;
  /** A run begins; what it returns is called when it has ended. `steer` takes what the user says meanwhile. */
  begin(run: { readonly interrupt: Interrupt; readonly steer: (text: string) => void }): () => void;
  approve(asked: AskedApproval): Promise<Decision>;
  /** The model's words. */
  writeText(text: string): void;
  /** Something about them. */
  writeLine(line: string): void;
  /** Ctrl-C in a run ends only the run, not the chat. */
  readonly outlivesInterrupt: boolean;
  close(): void;
}
