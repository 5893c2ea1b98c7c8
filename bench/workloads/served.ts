import type { ContenderId } from '../contenders/list.ts';
import type { FrontCheck } from '../serving/check.ts';
import type { OpenFront } from '../serving/front.ts';
import type { Values } from './workload.ts';

/** A workload for servers between a client and the model. This process is the client; the server has its own process. */
export interface Served {
  readonly check: readonly FrontCheck[];
  /** The model names that it uses. */
  readonly scripts: readonly string[];
  /** See `FrontOptions`. */
  readonly attacked?: boolean;
  /** Called with a front that passed the checks. */
  readonly measure: (measurement: FrontMeasurement) => Promise<Values>;
}

export interface FrontMeasurement {
  readonly front: OpenFront;
  /** The address of the scripted model, for direct requests. */
  readonly provider: string;
  readonly warmUpMs: number;
  readonly measureMs: number;
}

/** Contenders with a process whose CPU time and memory can be measured. */
export const SERVERS: readonly ContenderId[] = ['proxy', 'treadle-server', 'treadle-server-stored'];
