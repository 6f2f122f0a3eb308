// One stream for all tabs of this browser: it allows few connections to one host. The tab that holds the lock
// listens and tells the others.
export function connect({ last, onEvent, onState }) {
  const others = new BroadcastChannel("tandem-events");
  let known = Number(last), known_state = null;
  const hear = (message) => {
    if (message.id) {
      if (message.id <= known) return;
      known = message.id;
    }
    if ("on" in message) { if (message.on !== known_state) onState(known_state = message.on); if (message.news) onEvent(null); }
    else onEvent(message.event);
  };
  others.onmessage = ({ data }) => hear(data);
  const tell = (message) => { hear(message); others.postMessage(message); };
  navigator.locks.request("tandem-events", () => new Promise(() => {
    const source = new EventSource(`/events?after=${known}`);
    let wasAway = false;
    source.onmessage = ({ data, lastEventId }) => tell({ id: Number(lastEventId), event: JSON.parse(data) });
    source.addEventListener("ready", () => { tell({ on: true, news: wasAway }); wasAway = false; });
    source.addEventListener("reset", ({ lastEventId }) => { known = Number(lastEventId); tell({ on: true, news: true }); });
    source.onerror = () => { wasAway = true; tell({ on: false }); };
  }));
}
