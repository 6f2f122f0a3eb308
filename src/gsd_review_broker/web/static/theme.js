// Set the chosen theme before anything is painted.
{
  const theme = localStorage.getItem("theme");
  if (theme) document.documentElement.dataset.theme = theme;
  document.documentElement.classList.add("scripted");
}
