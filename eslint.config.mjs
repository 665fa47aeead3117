/* Mistakes in the page's JavaScript. How it is laid out is nobody's business here; names are checked by `tsc`. */

import js from "@eslint/js";

export default [
  {
    ...js.configs.recommended,
    files: ["src/retinue/server/static/js/**/*.js"],
    linterOptions: { reportUnusedDisableDirectives: "error", reportUnusedInlineConfigs: "error" },
    languageOptions: { ecmaVersion: 2023, sourceType: "module" },
    rules: {
      ...js.configs.recommended.rules,
      "no-undef": "off", // tsc knows every name of a browser
      "no-control-regex": "off", // control characters are what is looked for
      eqeqeq: "error",
      "no-var": "error",
      "prefer-const": "error",
      "no-eval": "error",
      "no-implied-eval": "error",
      "array-callback-return": "error",
      "no-self-compare": "error",
      "no-unreachable-loop": "error",
    },
  },
];
