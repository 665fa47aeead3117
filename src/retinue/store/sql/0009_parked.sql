-- Until when a run is parked, since its provider takes nothing more.

{added};
