import type { Seen, Step } from './script.ts';

/** What a test asks of the provider's process. Each order gets one answer with its number. */
export type Order = { readonly number: number } & (
  | { readonly type: 'script'; readonly name: string; readonly steps: readonly Step[]; readonly isStrict: boolean }
  | { readonly type: 'seen'; readonly name: string }
  | { readonly type: 'said'; readonly name: string }
  | { readonly type: 'quiet'; readonly connections: number }
);

export type Report =
  | { readonly type: 'listening'; readonly port: number }
  | { readonly type: 'done'; readonly number: number; readonly result: readonly Seen[] | number | null };
