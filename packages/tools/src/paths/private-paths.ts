/* The one list of private paths is in core, where the policy asks about them. */
export { DEFAULT_PRIVATE, DEFAULT_PUBLIC, privatePaths } from '@treadle/core/policy';
