export { anthropic, type AnthropicOptions } from './anthropic.ts';
