// Filter the cards of the gallery by the words in its search field.
document.addEventListener("input", (event) => {
  if (!event.target.matches(".weft-filter")) return;
  const words = event.target.value.toLowerCase().split(/\s+/).filter(Boolean);
  for (const card of document.querySelectorAll(".weft-card")) {
    const text = card.textContent.toLowerCase();
    card.hidden = !words.every((word) => text.includes(word));
  }
});
