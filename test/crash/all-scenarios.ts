import type { Scenario } from './scenario.ts';
import { direct, hopeless, reflecting } from './scenarios/agents.ts';
import { approvals, policed } from './scenarios/approvals.ts';
import { asking } from './scenarios/asking.ts';
import { exceeding, sharedBudget, spent } from './scenarios/budget.ts';
import { beginning } from './scenarios/beginning.ts';
import { calls } from './scenarios/calls.ts';
import { changing } from './scenarios/changing.ts';
import { child, expiring, grandchild, orphaned } from './scenarios/children.ts';
import { device } from './scenarios/device.ts';
import { cancelled, failing, outage, overdue, unprepared } from './scenarios/endings.ts';
import { filed } from './scenarios/filed.ts';
import { filtering } from './scenarios/filtering.ts';
import { fork } from './scenarios/fork.ts';
import { guarded } from './scenarios/guarded.ts';
import { handingOver } from './scenarios/handing-over.ts';
import { holding } from './scenarios/holding.ts';
import { length } from './scenarios/length.ts';
import { narrowing, narrowingBySource, skilled } from './scenarios/narrowing.ts';
import { failedOutside, parked } from './scenarios/parked.ts';
import { ending, programmed } from './scenarios/program.ts';
import { remembering, rememberingByCall } from './scenarios/remembering.ts';
import { limited, ruled } from './scenarios/ruled.ts';
import { shaping } from './scenarios/shaping.ts';
import { retrying, sleeping } from './scenarios/sleeping.ts';
import { variety } from './scenarios/variety.ts';
import { verify } from './scenarios/verify.ts';
import { walled } from './scenarios/walled.ts';

/** All scenarios. Together they contain every type of event and effect. */
export const SCENARIOS: readonly Scenario[] = [
  calls,
  approvals,
  policed,
  ruled,
  limited,
  walled,
  shaping,
  length,
  verify,
  child,
  grandchild,
  expiring,
  orphaned,
  device,
  cancelled,
  overdue,
  outage,
  unprepared,
  fork,
  variety,
  reflecting,
  direct,
  hopeless,
  remembering,
  rememberingByCall,
  changing,
  narrowing,
  narrowingBySource,
  skilled,
  spent,
  sharedBudget,
  exceeding,
  failing,
  guarded,
  handingOver,
  parked,
  failedOutside,
  programmed,
  ending,
  asking,
  sleeping,
  holding,
  retrying,
  beginning,
  filtering,
  filed,
];
