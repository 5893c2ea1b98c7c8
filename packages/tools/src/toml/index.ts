export { keyLines, lineOf } from './key-lines.ts';
export { parseToml, TomlProblem } from './parse-toml.ts';
export { checkShape, type Shape } from './shape.ts';
