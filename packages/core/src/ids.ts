/** A new name for a run. The only randomness in core. */
export function newRunId(): string {
  return `run_${crypto.randomUUID().replaceAll('-', '')}`;
}
