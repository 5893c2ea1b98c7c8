/** Loaded when a change is shown: a bundle of its own, with this function and not the whole library. */
export { diffLines } from 'diff';
