import type { Message } from '../messages.ts';
export interface History { readonly items: readonly Message[]; readonly length: number }
