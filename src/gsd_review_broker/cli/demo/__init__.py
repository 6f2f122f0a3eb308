"""`tandem demo`: the whole loop on any machine, with a scripted proposer and a scripted reviewer as real processes."""
