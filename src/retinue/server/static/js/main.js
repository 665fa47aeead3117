/* Where the page begins: who is there, then the shell, then the view of the address. */

import { Shell } from "./shell.js";

customElements.define("r-shell", Shell);
