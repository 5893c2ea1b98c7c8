/**
 * Why something under way has to stop when its run is merely left: nobody wants it ended. A run that works for a call
 * of that run knows by it that it is left too, and not cancelled.
 */
export const DETACHED: DOMException = new DOMException('The run was detached.', 'AbortError');
