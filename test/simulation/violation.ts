/** The names of the checks, as failures report them. */
export type CheckName =
  | 'I1 to I6'
  | 'I5 replay'
  | 'I8 durable'
  | 'I9 order'
  | 'acknowledged'
  | 'append only'
  | 'budget'
  | 'cancel order'
  | 'counts'
  | 'crash loop'
  | 'damage'
  | 'effect twice'
  | 'ending'
  | 'error'
  | 'exposure'
  | 'filter'
  | 'inbox'
  | 'issued'
  | 'lease'
  | 'ledger and journal'
  | 'resource'
  | 'sandbox'
  | 'shown'
  | 'takeover'
  | 'told'
  | 'tokens'
  | 'woken'
  | 'written';

export class Violation extends Error {
  readonly check: CheckName;

  constructor(check: CheckName, message: string) {
    super(message);
    this.check = check;
  }
}

export function ensure(holds: boolean, check: CheckName, message: () => string): asserts holds {
  if (!holds) throw new Violation(check, message());
}
