/* What the views of a run have in common: each is drawn whenever its workflow changes, while it is on the page. */

import { paced } from "../dom.js";

export class FlowView extends HTMLElement {
  /** Draw from now on by `draw`, not more often than can be seen. The last that `connectedCallback` does. */
  begin(draw) {
    this.draw = paced(draw);
    this.onChange = () => this.draw();
    if (this.flow) this.watch(this.flow);
  }

  disconnectedCallback() {
    this.draw.cancel();
    this.flow?.removeEventListener("change", this.onChange);
  }

  watch(flow) {
    this.flow = flow;
    if (!this.isConnected) return;
    flow.addEventListener("change", this.onChange);
    this.draw();
  }
}
