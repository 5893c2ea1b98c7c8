import type { ContenderId } from '../contenders/list.ts';
import type { FrontCheck } from '../serving/check.ts';
import type { OpenFront } from '../serving/front.ts';
import type { Values } from './workload.ts';

/** What fronts are measured at: servers between a client and the model. The client is this process, they have another. */
export interface Served {
  readonly check: readonly FrontCheck[];
  /** The models that it asks for. */
  readonly scripts: readonly string[];
  /** With a front that passed the checks. */
  readonly measure: (stage: FrontStage) => Promise<Values>;
}

export interface FrontStage {
  readonly front: OpenFront;
  /** The scripted model, to ask it directly. */
  readonly provider: string;
  readonly warmUpMs: number;
  readonly measureMs: number;
}

/** Those with a process whose CPU time and memory can be measured. */
export const SERVERS: readonly ContenderId[] = ['proxy', 'treadle-server', 'treadle-server-stored'];
